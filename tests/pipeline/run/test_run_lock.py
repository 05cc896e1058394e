"""A run directory has one run at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.pipeline.run.lock import NAME, NotALock, RunLock, holder, is_lock

TAKE = "import sys; from pathlib import Path; from etude.pipeline.run.lock import RunLock\nwith RunLock(Path(sys.argv[1])): pass"


def _second_run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-c", TAKE, str(folder)], capture_output=True, text=True, timeout=60)


def test_a_second_run_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        refused = _second_run(tmp_path)
        assert refused.returncode == 1
        assert f"{tmp_path} is in use by process {os.getpid()}" in refused.stderr
    assert _second_run(tmp_path).returncode == 0


@pytest.mark.parametrize("look", [lambda folder: is_lock(folder / NAME), lambda folder: holder(folder) == os.getpid()])
def test_looking_at_the_own_lock_does_not_drop_it(tmp_path: Path, look) -> None:
    with RunLock(tmp_path):
        assert look(tmp_path)
        assert _second_run(tmp_path).returncode == 1


def test_a_lock_that_was_given_back_is_not_held(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        pass
    assert holder(tmp_path) is None
    assert is_lock(tmp_path / NAME)


def test_a_file_of_another_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("a diary\n")
    with pytest.raises(NotALock), RunLock(tmp_path):
        pass
    assert not is_lock(tmp_path / NAME)
    assert (tmp_path / NAME).read_text() == "a diary\n"
