"""A session in the making out of another agent's log, with an account of what was mapped, kept as it was, or dropped.

Nothing is dropped silently: every reason is counted in the header (`recipe.import.dropped`). Tokens are never invented:
an imported session has none.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Mapping, TypeVar, get_origin

from etude.core.trace.change import TextChange
from etude.core.trace.entry import Effort, Entry, EntryType, SessionHeader
from etude.core.trace.message import Message
from etude.core.trace.session import Session

Row = dict[str, Any]
T = TypeVar("T", str, int, list[Any], dict[str, Any])


class ForeignError(ValueError):
    """The log is not of the form that its agent writes; names the place and what was expected."""


class SessionDraft:
    """Collects entries. Times are Unix seconds; those before the first, and lines without one, take the last known."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.agent_version = ""
        self.session_id = ""
        self.policy = ""
        self.workspace = ""
        self.instruction = ""
        self.asides: tuple[str, ...] = ()  # how messages begin that the agent says in the user's name
        self.effort: Effort = "medium"
        self.harness_facts: Row = {}
        self.facts: Row = {}
        self.rows = 0
        self.mapped = 0
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self._entries: list[Entry] = []
        self._first_s: float | None = None
        self._last_s = 0.0
        self._summaries = 0

    @property
    def last(self) -> int | None:
        """The last entry's id."""
        return self._entries[-1].id if self._entries else None

    def at(self, timestamp: float | None) -> None:
        """The time of what follows."""
        if timestamp is None:
            return
        if self._first_s is None:
            self._first_s = timestamp
        self._last_s = max(self._last_s, timestamp - self._first_s)

    def add(
        self, type: EntryType, data: Row, *, parent: int | None = None, foreign: Mapping[str, Any] | None = None
    ) -> int:
        """An entry; `foreign` holds the log's further fields about it."""
        self.mapped += type != "foreign"
        kept = {"foreign": dict(foreign)} if foreign else {}
        self._entries.append(Entry(len(self._entries), parent, type, round(self._last_s, 4), {**data, **kept}))
        return len(self._entries) - 1

    def renew(self, entry: int, data: Row) -> None:
        """More of an entry became known; what is not in `data` stays."""
        self._entries[entry].data.update(data)

    def message(self, message: Message, *, parent: int | None = None, foreign: Mapping[str, Any] | None = None) -> int:
        """A message of the system or the user. The first request becomes the session's instruction."""
        asked = message.role == "user" and not message.summary and not message.text.startswith(self.asides)
        if asked and not self.instruction and message.text.strip():
            self.instruction = message.text
        return self.add("message", message.to_json(), parent=parent, foreign=foreign)

    def summary(self, text: str, *, parent: int | None = None, foreign: Mapping[str, Any] | None = None) -> int:
        """A compaction: what the agent went on with."""
        self._summaries += 1
        carried = Message("user", text, summary=True).to_json()
        data = {"number": self._summaries, "text": text, "state": [], "message": carried}
        return self.add("summary", data, parent=parent, foreign=foreign)

    def edit(self, call_id: str, change: TextChange) -> None:
        """An edit of which the log tells both texts; the path is made relative to the workspace."""
        path = change.path.removeprefix(self.workspace.rstrip("/") + "/") if self.workspace else change.path
        self.add("edit", TextChange(path, change.before, change.after).to_entry(call_id))

    def keep(self, row: Row) -> int:
        """A line that this format has no type for."""
        self.kept += 1
        return self.add("foreign", {"foreign": row})

    def drop(self, reason: str, count: int = 1) -> None:
        """Something that is not kept, and why."""
        self.dropped[reason] += count

    def session(self) -> Session:
        """All of it. Raises ForeignError for a log without a single turn."""
        if not any(entry.type == "completion" for entry in self._entries):
            raise ForeignError(
                f"this {self.agent} log holds no answer of a model ({self.rows} lines): nothing to import"
            )
        account = {
            "agent": self.agent,
            "agent_version": self.agent_version,
            "rows": self.rows,
            "entries": self.mapped,
            "kept_as_foreign": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
        }
        header = SessionHeader(
            session_id=f"{self.agent}-{self.session_id}",
            harness_facts=self.harness_facts,
            effort=self.effort,
            policy=self.policy,
            created_unix_s=round(self._first_s or 0.0, 3),
            facts={"instruction": self.instruction, "test_command": [], "workspace": self.workspace, **self.facts},
            recipe={"import": account},
        )
        return Session(header, self._entries)


def need(row: Any, key: str, kinds: type | tuple[type, ...], place: str) -> Any:
    """`row[key]`, which must be of one of these types. Raises ForeignError naming place, key and what was there."""
    if not isinstance(row, dict):
        raise ForeignError(f"{place}: expected an object, found {type(row).__name__}")
    if key not in row or not isinstance(row[key], kinds):
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        found = f"found {type(row[key]).__name__}" if key in row else f"there are {', '.join(sorted(row)) or 'no keys'}"
        raise ForeignError(f"{place}: {key} must be {names}; {found}")
    return row[key]


def maybe(row: Row, key: str, kind: type[T], place: str) -> T:
    """`row[key]`, or the empty value of its type if it is missing or null. Raises ForeignError for another type."""
    return kind() if row.get(key) is None else need(row, key, get_origin(kind) or kind, place)


def unix_s(text: Any, place: str) -> float | None:
    """An ISO 8601 time as Unix seconds (without a zone: UTC); None stays None. Raises ForeignError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise ForeignError(f"{place}: {text!r} is no ISO 8601 time") from error
    return found.timestamp() if found.tzinfo else datetime.fromisoformat(f"{text}+00:00").timestamp()


def rest(row: Row, mapped: frozenset[str]) -> Row:
    """What of a row has no place of its own; empty and false values say nothing and are left out."""
    return {key: value for key, value in row.items() if key not in mapped and value not in (None, "", [], {}, False)}
