"""What `--sandbox workspace` means in an editor: commands behind the walls, files through the editor, and nothing less than asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import FileSystemCapabilities, WriteTextFileResponse
from acp_lab import FIX, Connect, program

from etude.agent.acp.editor_folder import EditorFolder
from etude.agent.workspace.local_folder import LocalFolder


@pytest.mark.walls
async def test_commands_run_in_the_sandbox_and_edits_go_through_the_editor(
    connect: Connect, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (folder / ".git").mkdir()
    command = f"echo x > {outside}; echo x > .git/hook; echo x > inside; ls {tmp_path}/sessions"
    async with connect("never", files=True, walls="workspace") as (editor, agent):
        path = str(folder / "shop.py")
        editor.buffers[path] = "def total(items):\n    return -sum(items)  # unsaved\n"
        session = await agent.new_session(cwd=str(folder))
        call = {"call": ["run_terminal_cmd", {"command": command}]}
        hook = {"call": ["write", {"file_path": ".git/config", "contents": "[core]\n"}]}
        await agent.prompt(session.session_id, program(call, FIX, hook, {"say": "over"}))
        assert (folder / "inside").exists() and not outside.exists() and list((folder / ".git").iterdir()) == []
        assert editor.buffers == {path: "def total(items):\n    return sum(items)  # unsaved\n"}
        assert (folder / "shop.py").read_text() == editor.buffers[path]
        results = [u.status for u in editor.of("tool_call_update") if u.status in ("completed", "failed")]
        assert results[-1] == "failed"  # the repository's own data


@pytest.mark.nightly
@pytest.mark.walls
async def test_folders_next_to_that_the_sandbox_can_not_open_are_reported(
    connect: Connect, folder: Path, tmp_path: Path
) -> None:
    neighbour = tmp_path / "outside"
    neighbour.mkdir()
    async with connect("never", walls="workspace") as (editor, agent):
        session = await agent.new_session(cwd=str(folder), additional_directories=[str(neighbour)])
        await agent.prompt(session.session_id, program({"say": "over"}))
        assert f"{neighbour}: can be read, not written" in editor.said()


@pytest.mark.parametrize("path", [".git/config", "link/x", "../x", "/etc/passwd", "/tmp/etude-outputs/1.txt", "."])
async def test_what_is_not_the_workspaces_never_reaches_the_editor(path: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "p", tmp_path / "other"
    for place in (folder / ".git", other):
        place.mkdir(parents=True)
    (folder / "link").symlink_to(other)

    class Client:
        async def write_text_file(self, **row: Any) -> WriteTextFileResponse:
            raise AssertionError(row)

    class Deaf(LocalFolder):
        async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
            """The disk is not what is tested."""

    offered = FileSystemCapabilities(read_text_file=True, write_text_file=True)
    machine = EditorFolder(Deaf(folder), Client(), "s", offered)  # pyright: ignore[reportArgumentType]
    await machine.write(path, b"x")


async def test_commands_with_a_slash_are_reported_and_heard(connect: Connect, folder: Path) -> None:
    async with connect("never") as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        with pytest.raises(acp.RequestError, match="nothing to sum up yet"):
            await agent.prompt(session.session_id, [acp.text_block("/compact")])
        await agent.prompt(session.session_id, program(FIX, {"say": "over"}))
        (known,) = editor.of("available_commands_update")
        assert {command.name for command in known.available_commands} == {"compact", "undo", "mcp"}
        await agent.prompt(session.session_id, [acp.text_block("/undo")])
        assert "took back shop.py" in editor.said() and "-sum" in (folder / "shop.py").read_text()
        assert (
            await agent.prompt(session.session_id, [acp.text_block("/compact the names")])
        ).stop_reason == "end_turn"
        await agent.prompt(session.session_id, [acp.text_block("/mcp")])
        assert "no MCP servers" in editor.said()
