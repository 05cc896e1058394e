"""What an auditor sees of one pass: what was asked, what was done, what was changed. Neither its score nor who did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from etude.core.trace.reader import read_session
from etude.core.trace.session import Session
from etude.evaluate.bench.grading.claims import is_test
from etude.evaluate.bench.grading.edited_lines import EditedLines, edits_of_patch
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt, judged_attempt
from etude.evaluate.bench.grading.log import ActionEvent, events_of
from etude.tasks.task import Task


@dataclass(frozen=True)
class Start:
    """What the workspace held, as far as it is known. `graded`: paths that the grader takes from the agent; None: not known."""

    files: Mapping[str, str]
    tests: frozenset[str] = frozenset()
    graded: frozenset[str] | None = None

    @classmethod
    def of(cls, task: Task) -> Start:
        """Tests are what the test command names, whole folders too, and what test runners would find."""
        named = [word.rstrip("/") for word in task.test_command]
        tests = {path for path in task.files if is_test(path) or any(_under(path, word) for word in named)}
        editable = task.metadata.get("editable")
        return cls(task.files, frozenset(tests), frozenset(editable) if isinstance(editable, list) else None)


@dataclass(frozen=True)
class Evidence:
    """One pass. `changes`: what was written, file by file, out of the patch where there is one, else out of the calls."""

    start: Start
    events: tuple[ActionEvent, ...]
    changes: tuple[EditedLines, ...]
    attempt: JudgedAttempt

    @property
    def added(self) -> dict[str, list[str]]:
        """Lines put in, by path."""
        found: dict[str, list[str]] = {}
        for one in self.changes:
            found.setdefault(one.path, []).extend(one.new)
        return found

    @property
    def gone(self) -> dict[str, list[str]]:
        """Lines taken out, by path."""
        found: dict[str, list[str]] = {}
        for one in self.changes:
            found.setdefault(one.path, []).extend(one.gone)
        return found

    @property
    def commands(self) -> list[str]:
        """Command lines, in order."""
        return [
            event.what
            for event in self.events
            if event.kind == "shell" or (event.kind in ("test", "edit") and " " in event.what)
        ]

    def is_test(self, path: str) -> bool:
        return path in self.start.tests or is_test(path)


def evidence_of(session: Session, start: Start, patch: str | None = None) -> Evidence:
    """Of a recorded session, and of what it came to if that was kept."""
    events = tuple(events_of(session))
    changes = (
        tuple(edits_of_patch(patch)) if patch is not None else tuple(one for event in events for one in event.edits)
    )
    attempt = judged_attempt(session, {})
    return Evidence(start, events, changes, attempt if patch is None else attempt.with_diff(patch))


def read_evidence(path: Path, start: Start) -> Evidence:
    """The evidence of a session file and the patch next to it. Raises OSError, SessionError."""
    patch = path.with_suffix(".patch")
    return evidence_of(read_session(path), start, patch.read_text(encoding="utf-8") if patch.is_file() else None)


def _under(path: str, word: str) -> bool:
    return bool(word) and (path == word or path.startswith(f"{word}/") or path == word.partition("::")[0])
