"""What a policy leaves may be anything: it costs its own rollout the reward, and the stage goes on (promise 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_in_threads import a_run, check_whole, live

from etude.rl.ledger import RlLedger
from etude.rl.store import GroupStore
from etude.tasks.cheats.exercise import forged_frames
from etude.tasks.registry import GRADERS
from etude.tasks.task import Task, Verdict

ODD = {"a\udcff.py": b"\xff\xfe", "x" * 200: b"\0", "²/³.py": b"(" * 9000, "conftest.py": b"raise SystemExit(0)"}


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every agent leaves code that speaks in its grader's name, under names that are no text."""

    async def left(sandbox: Any, task: Task, settings: Any) -> tuple[dict[str, bytes], str]:
        return {**forged_frames(task), **ODD}, ""

    monkeypatch.setattr("etude.rollout.attempt._export", left)


def _check(folder: Path, steps: int, word: str) -> None:
    store = GroupStore(folder / "groups")
    groups = [store.load(index) for index in range(steps * 2)]
    assert all(member.rewards["outcome"] == 0.0 for group in groups for member in group)
    assert any(word in member.info["verdict"] for group in groups for member in group)
    assert not [row for row in RlLedger(folder / "ledger.jsonl").entries if row.get("kind") == "fault"]


def test_hostile_files_earn_nothing_and_end_no_rl_stage(hostile: None, checkpoint: Path, tmp_path: Path) -> None:
    run = a_run(checkpoint, tmp_path, steps=1)
    live(run)
    check_whole(run)
    _check(tmp_path, 1, "failed")


def test_a_grader_that_fails_on_an_agents_files_ends_no_rl_stage(
    hostile: None, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fragile:
        async def grade(self, task: Task, files: dict[str, bytes], pool: Any) -> Verdict:
            if "conftest.py" in files:
                raise ValueError("invalid literal for int() with base 10: '²'")
            return Verdict(0.0)

    for name in GRADERS:
        monkeypatch.setitem(GRADERS, name, Fragile())
    run = a_run(checkpoint, tmp_path, steps=1)
    live(run)
    check_whole(run)
    _check(tmp_path, 1, "can't judge what the attempt left: ValueError")
