"""The ACP server as an editor drives it: the SDK's own client, over the pipes of a real process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import acp
import pytest
from acp_lab import FIX, MCP_SCRIPT, RUN, SCRIPT, Connect, Editor, program, surroundings

from etude.core.trace.reader import read_session


async def test_a_prompt_streams_words_calls_and_diffs_and_ends(connect: Connect, folder: Path) -> None:
    async with connect() as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        answer = await agent.prompt(session.session_id, program(FIX, {"think": "is it so?", "say": "Fixed the sign."}))
        assert answer.stop_reason == "end_turn"
        assert editor.said() == "Fixed the sign." and len(editor.of("agent_message_chunk")) == 2
        assert "".join(u.content.text for u in editor.of("agent_thought_chunk")) == "is it so?"
        (start,), changes = editor.of("tool_call"), editor.of("tool_call_update")
        path = str(folder / "shop.py")
        assert (start.kind, start.status, start.locations[0].path) == ("edit", "pending", path)
        assert changes[0].status == "completed" and changes[-1].locations[0].line == 2
        (diff,) = changes[-1].content
        assert (diff.path, "-sum" in diff.old_text, "return sum" in diff.new_text) == (path, True, True)
    assert "return sum" in (folder / "shop.py").read_text()


async def test_a_permission_is_asked_and_a_no_is_reported_to_the_model(connect: Connect, folder: Path) -> None:
    async with connect() as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        for answer, status, text in (("deny", "failed", "not allowed"), ("once", "completed", "hello")):
            editor.answer, editor.updates = answer, []
            await agent.prompt(session.session_id, program(RUN, {"say": "over"}))
            update = editor.of("tool_call_update")[-1]
            assert update.status == status and text in update.content[0].content.text
        call, options = editor.asked[0]
        assert (call.kind, call.title, options) == ("execute", "echo hello", ["once", "session", "deny"])
        editor.answer = "session"
        for _ in range(2):
            await agent.prompt(session.session_id, program(RUN, {"say": "over"}))
        assert len(editor.asked) == 3  # the last was not asked for any more


async def test_modes_are_approval_policies(connect: Connect, folder: Path) -> None:
    async with connect() as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        assert session.modes.current_mode_id == "commands"
        assert [mode.id for mode in session.modes.available_modes] == ["never", "commands", "writes", "all"]
        await agent.set_session_mode(session_id=session.session_id, mode_id="writes")
        editor.answer = "closed"
        await agent.prompt(session.session_id, program(FIX, {"say": "over"}))
        assert len(editor.asked) == 1 and "-sum" in (folder / "shop.py").read_text()
        with pytest.raises(acp.RequestError, match="no mode 'yolo'"):
            await agent.set_session_mode(session_id=session.session_id, mode_id="yolo")


async def test_a_cancel_breaks_off_the_turn_and_the_session_goes_on(connect: Connect, folder: Path) -> None:
    async with connect("never") as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        sleep = {"call": ["run_terminal_cmd", {"command": "sleep 60"}]}
        running = asyncio.create_task(agent.prompt(session.session_id, program(sleep, {"say": "slept"})))
        await asyncio.wait_for(editor.until("tool_call"), 20)
        await agent.cancel(session_id=session.session_id)
        assert (await asyncio.wait_for(running, 10)).stop_reason == "cancelled"
        assert "stopped by the user" in editor.of("tool_call_update")[-1].content[0].content.text
        assert (await agent.prompt(session.session_id, program({"say": "still here"}))).stop_reason == "end_turn"
        assert editor.said() == "still here"


async def test_two_sessions_work_at_once_and_do_not_mix(connect: Connect, folder: Path, tmp_path: Path) -> None:
    async with connect() as (editor, agent):
        other = tmp_path / "other"
        other.mkdir()
        ids = [(await agent.new_session(cwd=str(place))).session_id for place in (folder, other)]
        prompts = [agent.prompt(one, program({"wait": 0.5, "say": f"I am {i}"})) for i, one in enumerate(ids)]
        start = asyncio.get_running_loop().time()
        await asyncio.gather(*prompts)
        assert asyncio.get_running_loop().time() - start < 5
        assert [editor.said(one) for one in ids] == ["I am 0", "I am 1"]


async def test_a_prompt_in_mid_turn_steers(connect: Connect, folder: Path) -> None:
    async with connect("never") as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        wait = {"call": ["run_terminal_cmd", {"command": "sleep 1"}]}
        running = asyncio.create_task(agent.prompt(session.session_id, program(wait, {"say": "never said"})))
        await asyncio.wait_for(editor.until("tool_call"), 20)
        second = await agent.prompt(session.session_id, [acp.text_block("the other file, please")])
        assert (second.stop_reason, (await running).stop_reason) == ("end_turn", "end_turn")
        assert "the other file, please" in editor.said() and "never said" not in editor.said()


async def test_a_session_is_listed_loaded_and_goes_on(connect: Connect, folder: Path, tmp_path: Path) -> None:
    async with connect() as (_, agent):
        session_id = (await agent.new_session(cwd=str(folder))).session_id
        await agent.prompt(session_id, program(FIX, {"say": "Fixed."}))
    async with connect() as (editor, agent):
        listed = (await agent.list_sessions(cwd=str(folder))).sessions
        assert [one.session_id for one in listed] == [session_id]
        await agent.load_session(cwd=str(folder), session_id=session_id)
        kinds = [update.session_update for _, update in editor.updates]
        assert kinds[:2] == ["user_message_chunk", "tool_call"] and editor.said() == "Fixed."
        await agent.prompt(session_id, [acp.text_block("and now?")])
        assert editor.said() == "Fixed.heard 'and now?' at effort medium"
        with pytest.raises(acp.RequestError):
            await agent.load_session(cwd=str(folder), session_id="../../etc/passwd")
    session = read_session(tmp_path / "sessions" / f"{session_id}.jsonl")
    assert [entry.data["text"] for entry in session.of("message") if entry.data["role"] == "user"][-1] == "and now?"
    assert len(session.of("end")) == 2


async def test_effort_changes_for_the_next_prompt_and_is_recorded(
    connect: Connect, folder: Path, tmp_path: Path
) -> None:
    async with connect() as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        assert session.config_options[0].category == "thought_level"
        await agent.prompt(session.session_id, [acp.text_block("one")])
        changed = await agent.set_config_option(config_id="effort", session_id=session.session_id, value="high")
        assert changed.config_options[0].current_value == "high"
        await agent.prompt(session.session_id, [acp.text_block("two")])
        assert editor.said() == "heard 'one' at effort mediumheard 'two' at effort high"
    recorded = read_session(tmp_path / "sessions" / f"{session.session_id}.jsonl")
    assert [entry.data["effort"] for entry in recorded.of("effort")] == ["high"]


async def test_unsaved_buffers_are_read_and_edits_go_through_the_editor(connect: Connect, folder: Path) -> None:
    async with connect(files=True) as (editor, agent):
        path = str(folder / "shop.py")
        editor.buffers[path] = "def total(items):\n    return -sum(items)  # unsaved\n"
        session = await agent.new_session(cwd=str(folder))
        read = {"call": ["read_file", {"target_file": "shop.py"}]}
        await agent.prompt(session.session_id, program(read, FIX, {"say": "over"}))
        assert "# unsaved" in editor.of("tool_call_update")[0].content[0].content.text
        assert editor.buffers[path] == "def total(items):\n    return sum(items)  # unsaved\n"
        assert (folder / "shop.py").read_text() == editor.buffers[path]


async def test_line_ends_that_the_editor_does_not_show_are_kept(connect: Connect, folder: Path) -> None:
    async with connect(files=True) as (editor, agent):
        file = folder / "shop.py"
        file.write_bytes(b"def total(items):\r\n    return -sum(items)\r\n")
        editor.buffers[str(file)] = file.read_text()
        session = await agent.new_session(cwd=str(folder))
        await agent.prompt(session.session_id, program(FIX, {"say": "over"}))
        assert file.read_bytes() == b"def total(items):\r\n    return sum(items)\r\n"


async def test_the_todo_list_is_the_plan(connect: Connect, folder: Path) -> None:
    async with connect() as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        items = [
            {"id": "1", "content": "look", "status": "completed"},
            {"id": "2", "content": "fix it", "status": "pending"},
        ]
        await agent.prompt(
            session.session_id, program({"call": ["todo_write", {"todos": items, "merge": False}]}, {"say": "x"})
        )
        entries = editor.of("plan")[-1].entries
        assert [(one.content, one.status) for one in entries] == [("look", "completed"), ("fix it", "pending")]


async def test_a_fault_of_the_endpoint_is_one_clear_error_and_the_session_goes_on(
    connect: Connect, folder: Path
) -> None:
    async with connect() as (editor, agent):
        session = await agent.new_session(cwd=str(folder))
        with pytest.raises(acp.RequestError, match="the endpoint is down"):
            await agent.prompt(session.session_id, program({"break": "the endpoint is down"}))
        await agent.prompt(session.session_id, program({"say": "back"}))
        assert editor.said() == "back"


async def test_what_can_not_be_done_is_refused_with_the_remedy(connect: Connect, folder: Path) -> None:
    async with connect() as (_, agent):
        with pytest.raises(acp.RequestError, match="no absolute path"):
            await agent.new_session(cwd="somewhere")
        with pytest.raises(acp.RequestError, match="is no folder"):
            await agent.new_session(cwd=str(folder / "missing"))
        with pytest.raises(acp.RequestError, match="session/new"):
            await agent.prompt("unknown", program({"say": "x"}))
        session = await agent.new_session(cwd=str(folder))
        with pytest.raises(acp.RequestError, match="reads text only, not the image"):
            await agent.prompt(session.session_id, [acp.image_block("aGk=", "image/png")])


@pytest.mark.nightly
async def test_a_projects_mcp_server_is_asked_for_at_the_first_prompt(connect: Connect, folder: Path) -> None:
    row = {"command": sys.executable, "args": [str(MCP_SCRIPT)]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"shelf": row}}))
    add = program({"call": ["mcp__shelf__add", {"a": 2, "b": 3}]}, {"say": "over"})
    async with connect("never") as (editor, agent):
        editor.answer = "deny"
        session = await agent.new_session(cwd=str(folder))
        await agent.prompt(session.session_id, add)
        assert (
            "was not approved" in editor.said()
            and "no tool mcp__shelf" in editor.of("tool_call_update")[0].content[0].content.text
        )
        editor.answer = "always"
        for _ in range(2):  # the second is not asked for
            session = await agent.new_session(cwd=str(folder))
            await agent.prompt(session.session_id, add)
            assert editor.of("tool_call_update")[-1].content[0].content.text == "5"
        assert len(editor.asked) == 2 and str(MCP_SCRIPT) in editor.asked[0][0].title


async def test_an_editor_that_goes_away_ends_everything_and_the_session_is_whole(folder: Path, tmp_path: Path) -> None:
    env = surroundings(tmp_path)
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(sys.executable, str(SCRIPT), "never", "none", env=env, **pipes)
    assert process.stdin is not None and process.stdout is not None
    agent = acp.connect_to_agent(Editor(), process.stdin, process.stdout)  # pyright: ignore[reportArgumentType]
    await agent.initialize(acp.PROTOCOL_VERSION)
    session = await agent.new_session(cwd=str(folder))
    sleep = {"call": ["run_terminal_cmd", {"command": "touch began; sleep 60"}]}
    running = asyncio.create_task(agent.prompt(session.session_id, program(sleep)))
    while not (folder / "began").exists():
        await asyncio.sleep(0.05)
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 15) == 0
    running.cancel()
    await agent.close()
    recorded = read_session(tmp_path / "sessions" / f"{session.session_id}.jsonl")
    assert recorded.entries[-1].data["reason"] == "stopped"
