"""Where the agent may work: a folder that is there and open to this user, else one line with the remedy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from etude.face.errors import BadUse
from etude.face.place import Place, opened, surroundings
from etude.link.git import repository


def test_an_unreadable_workspace_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer is what is played here."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadUse) as refused:
        Place.at(tmp_path, "none", False)
    assert (
        str(refused.value) == f"{tmp_path} can't be read and written by this user; change its mode, or work elsewhere"
    )


def test_a_file_or_nothing_is_no_place_to_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file", "nothing"):
        with pytest.raises(BadUse, match=f"{name} is no folder; give the one to work in"):
            Place.at(tmp_path / name, "workspace", False)


@pytest.mark.parametrize("walls", [pytest.param("workspace", marks=pytest.mark.walls), "none"])
async def test_no_command_gets_the_models_key_with_or_without_walls(
    walls: Literal["workspace", "none"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, homes: Path
) -> None:
    monkeypatch.setenv("MY_LLM", "made-up-secret-value")
    monkeypatch.setenv("COPY", "Bearer made-up-secret-value")
    monkeypatch.setenv("OTHER_TOKEN", "made-up-secret-value")
    monkeypatch.setenv("PLAIN", "plain")
    folder = tmp_path / "folder"
    folder.mkdir()
    async with opened(Place.at(folder, walls, False), ["MY_LLM"]) as machine:
        found = (await machine.run(["env"])).out
    assert b"made-up-secret-value" not in found and b"PLAIN=plain" in found


async def test_a_folder_and_a_branch_that_are_no_utf8_are_described(tmp_path: Path, homes: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xe9"))
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", os.fsdecode(b"br\xe9"), "."], cwd=folder, check=True)
    assert "git, branch br�" in surroundings(Place.at(folder, "none", False))
    assert repository(folder) == folder.resolve()
