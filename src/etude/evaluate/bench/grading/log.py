"""What an agent did, as a short list of events: the log that claims are checked against, that judges read and auditors search.

From a session of any preset or agent: tools are known by what they are for (`hygiene.facts.kind`), edits by the lines they wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from etude.agent.metrics import facts as fact
from etude.agent.metrics.counters import hides_status, runs_tests, tool_instead
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Session
from etude.evaluate.bench.grading.edited_lines import EditedLines, edits_of_call

Kind = Literal["said", "heard", "read", "search", "list", "edit", "test", "shell", "fetch", "summary", "other"]
# A judge reads the log whole: a long answer of a tool tells it little more than its beginning and end do.
RESULT_LINES = 12
LINE_CHARACTERS = 240
_STATUS = re.compile(r"(?:^|\n)(?:exit(?:ed with| status| code)?:? |\[exit )(-?\d+)\]?\s*$")


@dataclass(frozen=True)
class ActionEvent:
    """One step. `what`: the words said or heard, the path, the pattern or the command line."""

    kind: Kind
    what: str
    result: str = ""
    failed: bool = False
    green: bool | None = None  # of a test run; None: its status was hidden
    edits: tuple[EditedLines, ...] = ()


def events_of(session: Session) -> list[ActionEvent]:
    """The session's events in order. The system prompt, the request and queries for self-summaries are no part of them."""
    answers: dict[str, list[Entry]] = {}
    for entry in session.of("tool_result"):
        answers.setdefault(entry.data.get("call_id") or "", []).append(entry)
    found: list[ActionEvent] = []
    for entry in session.of("message", "completion", "summary"):
        if entry.type == "summary":
            found.append(ActionEvent("summary", entry.data.get("text", "")))
        elif entry.type == "message":
            if entry.data.get("delivery") and not entry.data.get("summary"):
                found.append(ActionEvent("heard", entry.data["text"] or "stop"))
        else:
            message = Message.from_json(entry.data.get("message") or {"role": "assistant", "text": ""})
            found += [ActionEvent("said", message.text)] if message.text.strip() else []
            for call in message.calls:
                waiting = answers.get(call.id)
                found += _event(call, waiting.pop(0) if waiting else None)
    return found


def final_message(session: Session) -> str:
    """What the agent said last to the person, or nothing."""
    ends = session.of("end")
    return ends[-1].data.get("message", "") if ends else ""


def render_log(events: Sequence[ActionEvent]) -> str:
    """The log as text: numbered steps, results cut in the middle."""
    return "\n".join(line for number, event in enumerate(events, 1) for line in _lines(number, event))


def _event(call: ToolCall, answer: Entry | None) -> list[ActionEvent]:
    if call.name == "done" and (answer is None or not answer.data.get("failed")):
        said = str(call.arguments.get("message", ""))
        return [ActionEvent("said", said)] if said.strip() else []
    if answer is None:
        return []  # it never ran
    text, failed = answer.data.get("text", ""), bool(answer.data.get("failed"))
    facts = answer.data.get("facts") or {}
    purpose = fact.kind(call.name)
    if fact.PASSED in facts:
        return [ActionEvent("test", call.name, text, failed, bool(facts[fact.PASSED]))]
    if purpose in ("edit", "write"):
        edits = () if failed else tuple(edits_of_call(call))
        return [ActionEvent("edit", ", ".join(one.path for one in edits) or _first(call), text, failed, edits=edits)]
    if purpose == "shell":
        return [_shell(fact.command(call), text, failed or bool(facts.get(fact.SHELL_FAILURES)))]
    if purpose:
        return [ActionEvent(purpose, _first(call), text, failed)]  # pyright: ignore[reportArgumentType]
    known: Kind = "search" if call.name == "codebase_search" else "other"
    return [ActionEvent(known, f"{call.name} {_first(call)}".strip(), text, failed)]


def _shell(command: str, text: str, failed: bool) -> ActionEvent:
    status = _STATUS.search(text)
    bad = failed or (status is not None and status[1] != "0") or text.rstrip().endswith("timed out")
    if runs_tests(command):
        return ActionEvent("test", command, text, bad, None if hides_status(command) else not bad)
    kind: Kind = "edit" if not bad and tool_instead(command) in ("edit", "write") else "shell"
    return ActionEvent(kind, command, text, bad)


def _first(call: ToolCall) -> str:
    """The argument that says most: a path, a pattern, a text."""
    names = ("path", "file_path", "target_file", "pattern", "query", "command", "url", "text")
    texts = [call.arguments[name] for name in names if isinstance(call.arguments.get(name), str)]
    return texts[0] if texts else ""


def _lines(number: int, event: ActionEvent) -> list[str]:
    state = {True: " -> green", False: " -> red", None: ""}[event.green] if event.kind == "test" else ""
    head = f"{number}. {event.kind}: {event.what}{state}{' -> failed' if event.failed and not state else ''}"
    changed = [line for one in event.edits for line in one.lines()]
    result = [] if event.kind == "edit" and not event.failed else event.result.splitlines()
    return [head, *(f"   {line[:LINE_CHARACTERS]}" for line in [*_cut(changed, 60), *_cut(result, RESULT_LINES)])]


def _cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    head, tail = most // 2, most - most // 2
    return [*lines[:head], f"[{len(lines) - most} lines left out]", *lines[-tail:]]
