"""Tasks of a folder as text that must not be trained on: what their references write, their requests, their hidden tests, and their projects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from etude.core.fingerprint.publish import PublishSummary, write_fingerprints
from etude.tasks.environment.environment import environment_of
from etude.tasks.errors import TaskError
from etude.tasks.store.opened import Tasks
from etude.tasks.task import Split, Task

SPLITS: tuple[Split, ...] = ("validation", "heldout")  # of which figures are reported; what is trained on may be read


def published_texts(task: Task) -> Iterator[str]:
    """Lines that the reference adds, each hidden file, and the request in all its wordings."""
    for path, text in task.solution.items():
        yield _added(task.files.get(path, ""), text)
    hidden = task.hidden.get("files", {})
    yield from (text for text in (hidden.values() if isinstance(hidden, Mapping) else ()) if isinstance(text, str))
    yield from {task.instruction, *(task.metadata.get("prompts") or {}).values()}


def publish(tasks: Tasks, out: Path, splits: Collection[Split] = SPLITS) -> tuple[Path, PublishSummary]:
    """Writes `<name of the folder>.fp` into `out`. Raises TaskError where there is no task of these splits."""
    chosen = [row for row in tasks.rows.values() if row.split in splits]
    if not chosen:
        raise TaskError(f"{tasks.name} holds no task of {' or '.join(splits)}: there is nothing to keep from a corpus")
    texts: list[str] = []
    projects: set[str] = set()
    for row in chosen:
        task = tasks.task(row.id)
        texts += published_texts(task)
        environment = environment_of(task.metadata)
        projects |= {environment.project if environment else row.project} - {""}
    path = out / f"{tasks.name}.fp"
    return path, write_fingerprints(path, tasks.name, texts, projects)


def _added(old: str, new: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return "\n".join(
        line for tag, _, _, first, last in codes if tag in ("insert", "replace") for line in after[first:last]
    )
