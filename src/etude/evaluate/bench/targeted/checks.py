"""What a targeted task asks of the log and the files, as small named checks. A task lists those it needs under `check`; all must hold.

untouched = true | ["path"]      files are as they were, and no edit of them was ever made
answer = ["regex"]               the final message matches each; case does not matter
no_answer = ["regex"]            and none of these
sentences = 2                    the most sentences that the final message may have
asks = true | false              it ends with a question, or does not
added = ["regex"]                each matches some line that is new in the files
not_added = ["regex"]            none matches any
most_added = 6                   lines that are new in the files, empty ones aside
absent = ["regex"]               no line of the final files matches any
kept = ["line"]                  each is still in the final files, word for word
tested = true                    the last run of the tests was green, and nothing was edited after it
at_most = { failed_calls = 0 }   hygiene counters (`docs/counters.md`), and at_least
settled = ["path"]               not edited any more once the person had spoken
heard = true                     what the person said while the agent worked was heard
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from etude.agent.metrics.of_session import counters_of
from etude.agent.metrics.wording import asks
from etude.core.trace.session import Session
from etude.evaluate.bench.grading.log import ActionEvent, events_of, final_message
from etude.tasks.task import Task


@dataclass(frozen=True)
class Work:
    """One attempt as checks see it."""

    task: Task
    files: dict[str, bytes]
    session: Session

    @cached_property
    def events(self) -> list[ActionEvent]:
        return events_of(self.session)

    @cached_property
    def message(self) -> str:
        return final_message(self.session)

    @cached_property
    def added(self) -> list[str]:
        """Lines of the final files that the first ones had not, in order."""
        return [line for path in sorted(self.files) for line in self._added(path)]

    @cached_property
    def lines(self) -> list[str]:
        """Lines of the final files."""
        return [line for data in self.files.values() for line in data.decode(errors="replace").splitlines()]

    @cached_property
    def counters(self) -> dict[str, float]:
        return counters_of(self.session)

    def _added(self, path: str) -> Iterator[str]:
        before = self.task.files.get(path, "").splitlines()
        after = self.files[path].decode(errors="replace").splitlines()
        yield from (line[2:] for line in difflib.ndiff(before, after) if line.startswith("+ "))

    def has_edited(self, path: str, events: list[ActionEvent] | None = None) -> bool:
        """By a tool or by a shell command that names it, also where it was taken back."""
        found = self.events if events is None else events
        return any(event.kind == "edit" and not event.failed and path in _paths(event) for event in found)


def _paths(event: ActionEvent) -> set[str]:
    """What an edit changed; of a shell command, its words as paths."""
    words = (word.strip("'\"`;").removeprefix("./") for word in event.what.split())
    return {one.path for one in event.edits} or set(words)


Check = Callable[[Work, Any], bool]


def untouched(work: Work, paths: Any) -> bool:
    wanted = [*work.task.files] if paths is True else list(paths)
    same = all(work.files.get(path) == work.task.files[path].encode() for path in wanted)
    new = paths is True and any(path not in work.task.files for path in work.files)
    return same and not new and not any(work.has_edited(path) for path in wanted)


def answer(work: Work, patterns: Any) -> bool:
    return all(re.search(one, work.message, re.IGNORECASE | re.DOTALL) for one in patterns)


def no_answer(work: Work, patterns: Any) -> bool:
    return not any(re.search(one, work.message, re.IGNORECASE) for one in patterns)


def sentences(work: Work, most: Any) -> bool:
    found = [part for part in re.split(r"(?<=[.!?])\s+|\n+", work.message.strip()) if part.strip()]
    return 0 < len(found) <= most


def asking(work: Work, wanted: Any) -> bool:
    return asks(work.message) == wanted


def added(work: Work, patterns: Any) -> bool:
    return all(any(re.search(one, line) for line in work.added) for one in patterns)


def not_added(work: Work, patterns: Any) -> bool:
    return not any(re.search(one, line) for one in patterns for line in work.added)


def most_added(work: Work, most: Any) -> bool:
    return sum(bool(line.strip()) for line in work.added) <= most


def absent(work: Work, patterns: Any) -> bool:
    return not any(re.search(one, line) for one in patterns for line in work.lines)


def kept(work: Work, lines: Any) -> bool:
    return set(lines) <= set(work.lines)


def tested(work: Work, wanted: Any) -> bool:
    last = max((n for n, event in enumerate(work.events) if event.kind == "edit" and not event.failed), default=-1)
    runs = [event.green for event in work.events[last + 1 :] if event.kind == "test"]
    return (bool(runs) and runs[-1] is True) == wanted


def at_most(work: Work, limits: Any) -> bool:
    return all(work.counters[name] <= limit for name, limit in limits.items())


def at_least(work: Work, limits: Any) -> bool:
    return all(work.counters[name] >= limit for name, limit in limits.items())


def settled(work: Work, paths: Any) -> bool:
    spoken = next((n for n, event in enumerate(work.events) if event.kind == "heard"), None)
    return spoken is not None and not any(work.has_edited(path, work.events[spoken:]) for path in paths)


def heard(work: Work, wanted: Any) -> bool:
    return any(event.kind == "heard" for event in work.events) == wanted


CHECKS: dict[str, Check] = {
    "untouched": untouched,
    "answer": answer,
    "no_answer": no_answer,
    "sentences": sentences,
    "asks": asking,
    "added": added,
    "not_added": not_added,
    "most_added": most_added,
    "absent": absent,
    "kept": kept,
    "tested": tested,
    "at_most": at_most,
    "at_least": at_least,
    "settled": settled,
    "heard": heard,
}


def run_checks(work: Work) -> dict[str, bool]:
    """Each check of the task by name. Raises KeyError for a check or counter that there is none of."""
    return {name: CHECKS[name](work, value) for name, value in work.task.hidden.get("check", {}).items()}
