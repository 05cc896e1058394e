"""Rollouts are found wherever runs leave them, difficulty is written from them, and lists are narrowed by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli.tasks.difficulty import difficulty
from etude.cli.tasks.list_ import list_tasks
from etude.cli.tasks.show import show
from etude.cli.tasks.source import NoTask
from etude.core.trace.segment import Rollout
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.pipeline.run.rollouts import tried_in
from etude.rl.store import GroupStore
from etude.rollout.collect.tries import CollectedAttempt, CollectionLog
from etude.tasks.difficulty.marking import DifficultySample
from etude.tasks.errors import TaskError
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run of RL with a bench at its end, a bench run of its own, a collection."""
    root = tmp_path / "runs"
    counters = {"turns": 7.0, "thinking_tokens": 40.0}
    GroupStore(root / "mine" / "rl" / "groups").save(0, [Rollout("r", "easy", 0, [], {"outcome": 1.0}, counters)])
    for place in ("mine/trials/sft.jsonl", "bench/policies/model@medium.jsonl"):
        OutcomeFile(root / place).add(Outcome("hard", 0, "debugging", "made", 0.0, 9, 9, 12, 1.0))
    CollectionLog(root / "collected", {}).add(CollectedAttempt("hard", 0, 0.0, False, turns=20))
    (root / "mine" / "events.jsonl").write_text('{"kind": "metric"}\n')
    return root


def test_every_kind_of_run_is_read_once(runs: Path) -> None:
    assert sorted(tried_in([runs]), key=lambda one: (one.task, one.turns)) == [
        DifficultySample("easy", 1.0, 7.0, 40.0),
        DifficultySample("hard", 0.0, 12.0),
        DifficultySample("hard", 0.0, 12.0),
        DifficultySample("hard", 0.0, 20.0),
    ]


def test_a_folder_without_rollouts_is_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds no rollouts: give a run of"):
        list(tried_in([tmp_path]))
    with pytest.raises(TaskError, match="--runs .*/none: there is no such folder"):
        list(tried_in([tmp_path / "none"]))


def test_what_was_measured_is_listed_shown_and_filtered(tmp_path: Path, runs: Path) -> None:
    folder = TaskFolder(tmp_path / "tasks", make=True)
    for task_id in ("easy", "hard"):
        changed = {"changed": {"lines": 3, "files": 1}}
        folder.add(
            Task(
                task_id,
                "debugging",
                "made",
                "mend it",
                {"a.py": "x\n"},
                (),
                "commands",
                solution={"a.py": "y\n"},
                metadata=changed,
            )
        )
    with pytest.raises(NoTask, match="none was measured yet; `etude tasks difficulty"):
        list_tasks(folder.root, difficulty="0.5-1")
    document = difficulty(folder.root, [runs]).document
    assert (document["tasks"], document["rollouts"], document["written"]) == (2, 4, 2)
    assert [row["id"] for row in list_tasks(folder.root, difficulty="0.5-1").document["tasks"]] == ["hard"]
    assert [row["id"] for row in list_tasks(folder.root, difficulty="0-0.49").document["tasks"]] == ["easy"]
    assert "0.00 of 3 rollouts solved it" in show("hard", folder.root).text
    for wrong in ("1-0", "half", "0.2", "0-7"):
        with pytest.raises(NoTask, match=f"--difficulty {wrong}: give two numbers"):
            list_tasks(folder.root, difficulty=wrong)
