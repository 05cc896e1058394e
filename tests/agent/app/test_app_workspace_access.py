"""Where the agent may work: a folder that is there and open to this user, else one line with the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from etude.agent.app.errors import UsageError
from etude.agent.app.workspace_access import WorkspaceAccess, describe_surroundings, open_workspace
from etude.agent.git_links.git import repository
from etude.agent.workspace.shell_state import ShellState
from etude.agent.workspace.workspace import Workspace


def test_an_unreadable_workspace_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer is faked here."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError) as refused:
        WorkspaceAccess.validated(tmp_path, "none", False)
    assert (
        str(refused.value) == f"{tmp_path} can't be read and written by this user; change its mode, or work elsewhere"
    )


def test_a_file_or_nothing_is_no_place_to_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file", "nothing"):
        with pytest.raises(UsageError, match=f"{name} is no folder; give the one to work in"):
            WorkspaceAccess.validated(tmp_path / name, "workspace", False)


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
    async with open_workspace(WorkspaceAccess.validated(folder, walls, False), ["MY_LLM"]) as machine:
        found = (await machine.run(["env"])).out
    assert b"made-up-secret-value" not in found and b"PLAIN=plain" in found


async def test_a_folder_and_a_branch_that_are_no_utf8_are_described(tmp_path: Path, homes: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xe9"))
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", os.fsdecode(b"br\xe9"), "."], cwd=folder, check=True)
    assert "git, branch br�" in describe_surroundings(WorkspaceAccess.validated(folder, "none", False))
    assert repository(folder) == folder.resolve()


async def test_without_bubblewrap_the_agent_works_in_a_sandbox_of_our_own_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, homes: Path
) -> None:
    """The same rules: the folder can be written, nothing else, secrets are out of sight, and there is no network."""
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "bwrap" else real(name))
    home = tmp_path.resolve() / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("made-up-key")
    monkeypatch.setenv("HOME", str(home))
    folder = tmp_path.resolve() / "folder"
    (folder / ".git").mkdir(parents=True)
    reported: list[str] = []
    async with open_workspace(WorkspaceAccess.validated(folder, "workspace", False), [], reported.append) as machine:
        tries = "echo new > a.txt; echo x > /etc/x; echo x > .git/config; cat ~/.ssh/id"
        ran = await ShellState().run(Workspace(machine), tries, timeout_s=20, max_output_bytes=10_000)
        reach = await machine.run(
            ["python3", "-c", "import socket; print([name for _, name in socket.if_nameindex()])"]
        )
    assert (folder / "a.txt").read_text() == "new\n" and not Path("/etc/x").exists()
    assert not (folder / ".git" / "config").exists() and b"made-up-key" not in ran.output
    assert reach.out == b"['lo']\n"
    assert reported == [
        "sandbox: back end local serves, by the same rules "
        "(back end bubblewrap: there is no bwrap; install the package bubblewrap)"
    ]
