"""Processes that work for a folder of ours are found by what we gave them, and by nothing looser."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from etude.sandbox.cleanup import undo
from etude.sandbox.cleanup.errors import CleanupError
from etude.sandbox.cleanup.undo import EndHelpers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / f"etude-tenants-{os.getpid()}"
    made.mkdir()
    return made


def _start(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"] if not words else words, env={"PATH": os.environ["PATH"], **environment})


def test_helpers_end_and_those_who_only_stand_there_or_name_it_do_not(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("etude.sandbox.cleanup.undo.HELPERS_GRACE_S", 0.05)
    helpers = [
        _start(HOME=f"{folder}/home"),
        _start(XDG_RUNTIME_DIR=str(folder)),
        _start("/bin/sh", "-c", "sleep 600; true", "sh", "--root", f"{folder}/root"),
        _start("/bin/sh", "-c", "sleep 600; true", "sh", f"--root={folder}/root"),
    ]
    others = [
        _start(PWD=str(folder)),
        _start(HOME=f"{folder}x"),
        _start("/bin/sh", "-c", "sleep 600; true", "sh", f"{folder}/root"),
    ]
    try:
        time.sleep(0.1)  # until all have become what they were started as
        assert {being.pid for being in undo.helpers_of(str(folder))} == {one.pid for one in helpers}
        EndHelpers(str(folder)).undo()
        assert [one.wait(5) for one in helpers] == [-9] * 4
        assert [one.poll() for one in others] == [None] * 3
        EndHelpers(str(folder)).undo()
    finally:
        subprocess.run(["pkill", "-KILL", "-P", ",".join(str(one.pid) for one in (*helpers, *others))])
        for one in (*helpers, *others):
            one.kill()
            one.wait()


def test_what_cleans_up_by_itself_is_waited_for(folder: Path) -> None:
    helper = _start("/bin/sh", "-c", f"sleep 0.2; touch {folder}/cleaned", "sh", "--root", str(folder))
    EndHelpers(str(folder)).undo()
    helper.wait()
    assert (folder / "cleaned").exists()


def test_a_folder_that_is_not_ours_has_no_tenants() -> None:
    with pytest.raises(CleanupError, match="left alone"):
        EndHelpers("/root").undo()
