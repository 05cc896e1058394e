"""A policy that answers an earlier run's attempts again, turn by turn from the record, and notices when it is asked something else.

For what a model can't be paid for twice: is a change of the harness, the graders or the sandboxes visible in an old run's figures? What
differs from the record is a fault of ours, never a score: the request that was recorded has no answer here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_session
from etude.core.trace.session import Session

SHOWN_CHARS = 120


@dataclass(frozen=True)
class RecordedTurn:
    """What was asked, and the answer."""

    asked: tuple[Message, ...]
    answer: Completion


class RecordedRunPolicy:
    """Answers sessions `<task>#<pass>.<try>` from `<task>-<pass>.jsonl` in a folder of recorded ones."""

    takes_tokens = False

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._left: dict[str, Iterator[tuple[int, RecordedTurn]]] = {}

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError (infra) for an attempt without a record, and for a turn that was recorded otherwise."""
        path = self._path(request.session_id)
        if request.session_id not in self._left:
            self._left[request.session_id] = iter(list(enumerate(self._turns(path), 1)))
        number, turn = next(self._left[request.session_id], (0, None))
        if turn is None:
            raise PolicyError(f"{path} has no turn left to replay, and another one was asked: the harness changed")
        if difference := _difference(turn.asked, request.messages):
            raise PolicyError(f"{path}, turn {number}: the request differs from the record: {difference}")
        return turn.answer

    async def release(self, session_id: str) -> None:
        self._left.pop(session_id, None)

    def _path(self, session_id: str) -> Path:
        task_id, _, number = session_id.rpartition(".")[0].rpartition("#")
        return self._folder / f"{task_id.replace('/', '-')}-{number}.jsonl"

    def _turns(self, path: Path) -> list[RecordedTurn]:
        try:
            return turns_of(read_session(path))
        except FileNotFoundError as error:
            raise PolicyError(f"there is no recorded session {path}: replay no more tasks and passes than were made") from error
        except SessionError as error:
            raise PolicyError(f"{path} can't be replayed: {error}") from error


def turns_of(session: Session) -> list[RecordedTurn]:
    """Each completion with the conversation in front of it, as `harness.transcript` restores it."""
    held: list[Message] = []
    prefix: list[Message] = []
    found: list[RecordedTurn] = []
    for entry in session.entries:
        if entry.type == "completion":
            message, usage = Message.from_json(entry.data["message"]), Usage(**entry.data["usage"])
            found.append(RecordedTurn(tuple(held), Completion(message, finish=entry.data["finish"], usage=usage)))
            held.append(message)
        elif entry.type == "message":
            message = Message.from_json({key: value for key, value in entry.data.items() if key != "foreign"})
            if not found and message.delivery is None:
                prefix.append(message)
            held.append(message)
        elif entry.type == "tool_result":
            held.append(Message("tool", entry.data["text"], call_id=entry.data.get("call_id")))
        elif entry.type == "summary" and (carried := entry.data.get("message")):
            held = [*prefix, Message.from_json(carried)]
    return found


def _difference(recorded: Sequence[Message], asked: Sequence[Message]) -> str:
    """Where the first one is; "" if there is none."""
    for place, (before, now) in enumerate(zip(recorded, asked, strict=False), 1):
        if before != now:
            return f"message {place} ({now.role}) was {_short(before)}, it is {_short(now)}"
    if len(recorded) != len(asked):
        return f"it had {len(recorded)} messages, it has {len(asked)}"
    return ""


def _short(message: Message) -> str:
    text = repr(message.text)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
