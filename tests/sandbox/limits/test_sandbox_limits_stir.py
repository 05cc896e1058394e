"""The wait before a move is begun ahead of time by a move that changes nothing, and by nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.sandbox.limits import steps
from etude.sandbox.limits.hierarchy import Hierarchy


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "own"
    file.write_text("4:memory:/here\n")
    monkeypatch.setattr(steps, "_OWN", file)
    return file


def hierarchy(tmp_path: Path) -> Hierarchy:
    (tmp_path / "cgroup.procs").write_text("")
    return Hierarchy(1, frozenset({"memory"}), tmp_path, tmp_path)


def test_it_writes_this_process_into_its_own_group(tmp_path: Path, own: Path) -> None:
    steps.MovePrefetch(hierarchy(tmp_path))()
    assert (tmp_path / "cgroup.procs").read_text() == str(os.getpid())


def test_a_process_that_was_moved_meanwhile_is_not_moved_back(tmp_path: Path, own: Path) -> None:
    one = steps.MovePrefetch(hierarchy(tmp_path))
    own.write_text("4:memory:/elsewhere\n")
    one()
    assert (tmp_path / "cgroup.procs").read_text() == ""


def test_a_group_that_is_closed_to_us_costs_nothing(tmp_path: Path, own: Path) -> None:
    one = steps.MovePrefetch(hierarchy(tmp_path))
    (tmp_path / "cgroup.procs").unlink()
    one()
    assert not (tmp_path / "cgroup.procs").exists()
