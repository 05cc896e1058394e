"""A folder's tasks can be kept out of a corpus: by their references, hidden tests, requests and projects, and by nothing that can be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etude.learn.corpus.fingerprints import Fingerprints
from etude.tasks.environment.environment import Environment
from etude.tasks.errors import TaskError
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.published import publish
from etude.tasks.task import Task

KEPT = "def scaled(values, factor, offset):\n    return [value * factor + offset for value in values]\n"
GOLD = (
    "def smoothed(values, width, centre):\n    total = sum(values[centre - width : centre + width])\n"
    "    return total / (2 * width) if width else values[centre]\n"
)
HIDDEN = (
    "def test_smoothed():\n    expected = [1, 2, 3, 4, 5, 6, 7, 8]\n"
    "    assert smoothed(expected, 2, 4) == 4.5 and smoothed(expected, 0, 3) == 4\n"
)
TASK = Task(
    "t/1", "debugging", "bug", "smooth", {"a.py": KEPT}, (), "commands", split="heldout", solution={"a.py": KEPT + GOLD},
    hidden={"files": {"tests/test_a.py": HIDDEN}}, metadata={"project": "signals-1.0-2", "environment": Environment("signals", "1.0-2").to_record()},
)  # fmt: skip


def test_documents_with_a_reference_or_a_hidden_test_are_refused_and_others_are_not(tmp_path: Path):
    folder = TaskFolder(tmp_path / "mine", make=True)
    folder.add(TASK)
    folder.add(replace(TASK, id="t/2", split="train", solution={"b.py": KEPT + "x = 1\n"}, hidden={}))
    path, written = publish(folder, tmp_path)
    assert path.name == "mine.fp" and written.texts == 3 and GOLD.encode()[:20] not in path.read_bytes()
    prints = Fingerprints.load([path])
    for text, refused in ((GOLD, True), (HIDDEN, True), (KEPT, False)):
        assert bool(prints.refusal("other", f"import os\n\n\n{text}")) is refused, text
    assert prints.refusal("signals", "x = 1\n")
    with pytest.raises(TaskError, match="no task of validation"):
        publish(folder, tmp_path, ("validation",))
