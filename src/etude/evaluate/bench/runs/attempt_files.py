"""What is kept of an attempt in addition to its outcome: the session and the agent's change, for people, `report` and the auditor."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from etude.evaluate.bench.runs.folder import replace_text
from etude.rollout.attempt import Attempt
from etude.rollout.keep import keep_session
from etude.tasks.content import file_text, is_text, same_content
from etude.tasks.task import Task
from etude.core.trace.unicode import whole


def write_attempt_files(path: Path, attempt: Attempt, task: Task, facts: Mapping[str, object]) -> None:
    """Writes the session to `path` and the patch next to it. Written before the outcome, so that a counted attempt has both."""
    keep_session(path, attempt, {"stage": "bench", "level": task.level, **facts})
    replace_text(path.with_suffix(".patch"), patch(task.files, attempt.files))


def patch(before: Mapping[str, str], after: Mapping[str, bytes]) -> str:
    """A unified diff, files in order. A file that is no text before or after, or is a link, has one line. A name that is no text has U+FFFD
    where it is none. Empty if nothing changed, or no file came back."""
    parts = []
    for path in sorted({*before, *after}) if after else []:
        old, data = before.get(path), after.get(path)
        if old is not None and same_content(old, data):
            continue
        name, new = whole(path), None if data is None else file_text(data)
        if not is_text(old or "") or not is_text(new or ""):
            parts.append(f"Binary file {name} {'added' if old is None else 'removed' if new is None else 'differs'}\n")
            continue
        lines = difflib.unified_diff(
            (old or "").splitlines(keepends=True),
            (new or "").splitlines(keepends=True),
            "/dev/null" if old is None else f"a/{name}",
            "/dev/null" if new is None else f"b/{name}",
        )
        parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts)
