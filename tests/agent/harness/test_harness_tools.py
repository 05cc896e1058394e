"""Tools: short exact answers, failures that change nothing, words that never depend on the machine."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from etude.agent.chat.special import TOOL_PARAMETERS
from etude.agent.harness.presets.preset import harness_hash, preset
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.nano.grep import NanoGrep
from etude.agent.harness.tools.nano.tools import stable
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult, describe
from etude.agent.workspace.workspace import MAX_FILE_BYTES, Workspace, WorkspaceError
from etude.sandbox.errors import DiskFull, InfraError, SandboxDied
from etude.sandbox.spec import ExecResult

SETTINGS = HarnessSettings()


@pytest.fixture
def call(sandbox: Any) -> Callable[..., Any]:
    context = ToolContext(Workspace(sandbox), SETTINGS, ("python", "check.py"))

    async def run(name: str, **arguments: str) -> ToolResult:
        return await preset("full").tools[name].run(arguments, context)

    run.context = context  # type: ignore[attr-defined]
    return run


async def grep(call: Any, pattern: str) -> str:
    return (await NanoGrep(regex=False).run({"pattern": pattern}, call.context)).text


async def test_grep_lists_path_line_and_stripped_text(call: Any) -> None:
    assert await grep(call, "out -") == "shop.py:4 out -= x"
    assert await grep(call, "import total") == "main.py:1 from shop import total"
    assert await grep(call, "absent") == "no match"


async def test_grep_takes_its_pattern_literally_in_the_nano_preset(call: Any) -> None:
    assert await grep(call, "total([1") == "main.py:3 print(total([1, 2]))"
    assert await grep(call, "o.t") == "no match"


async def test_grep_counts_what_it_leaves_out_and_skips_what_is_not_text(call: Any, sandbox: Any) -> None:
    sandbox.files["many.txt"] = b"hit\n" * 9
    sandbox.files["blob.bin"] = b"hit\xff"
    sandbox.files[".git/x"] = sandbox.files["a/__pycache__/x"] = b"hit"
    rows = (await grep(call, "hit")).split("\n")
    assert rows == [f"many.txt:{i} hit" for i in range(1, SETTINGS.max_matches + 1)] + ["[3 more]"]


async def test_grep_refuses_a_pattern_that_matches_everything(call: Any) -> None:
    with pytest.raises(ToolError, match="empty pattern"):
        await grep(call, " ")


async def test_view_shows_the_file_as_it_is(call: Any, sandbox: Any) -> None:
    assert (await call("view", path="main.py")).text == "from shop import total\n\nprint(total([1, 2]))"
    sandbox.files["empty"] = b""
    assert (await call("view", path="empty")).text == "empty file"
    for path, data, words in (("b", b"\xff", "b is not text"), ("l", b"x" * (MAX_FILE_BYTES + 1), "larger than 1 MiB")):
        sandbox.files[path] = data
        with pytest.raises(WorkspaceError, match=words):
            await call("view", path=path)
    with pytest.raises(WorkspaceError, match="^no file nowhere.py$"):
        await call("view", path="nowhere.py")


async def test_edit_replaces_one_place_and_says_when_blanks_differed(call: Any, sandbox: Any) -> None:
    result = await call("edit", path="shop.py", old="out -= x", new="out += x")
    assert result == ToolResult("ok", facts={"edits": 1.0, "loose_edits": 0.0})
    result = await call("edit", path="shop.py", old="for  x in items:", new="for y in items:")
    assert result.text == "ok, blanks differed" and result.facts["loose_edits"] == 1
    assert b"    for y in items:\n        out += x\n" in sandbox.files["shop.py"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("out *= x", "y", "^no match; closest:\n4         out -= x$"),
        ("zzzzzz", "y", "^no match$"),
        ("out", "y", "^3 matches$"),
        ("items", "items", "^old and new are equal$"),
        ("", "", "^nothing to add$"),
    ],
)
async def test_a_failed_edit_changes_nothing(call: Any, sandbox: Any, old: str, new: str, words: str) -> None:
    before = dict(sandbox.files)
    with pytest.raises(ToolError, match=words):
        await call("edit", path="shop.py", old=old, new=new)
    assert sandbox.files == before


async def test_an_empty_old_appends_or_creates(call: Any, sandbox: Any) -> None:
    await call("edit", path="new.py", old="", new="a = 1")
    await call("edit", path="new.py", old="", new="b = 2\n")
    assert sandbox.files["new.py"] == b"a = 1\nb = 2\n"
    sandbox.files["open.py"] = b"x"
    await call("edit", path="open.py", old="", new="y")
    assert sandbox.files["open.py"] == b"x\ny\n"


async def test_writing_outside_or_onto_a_full_disk_is_reported(call: Any, sandbox: Any, monkeypatch: Any) -> None:
    with pytest.raises(WorkspaceError, match=r"^cannot write \.\./x$"):
        await call("edit", path="../x", old="", new="y")

    async def full(*args: Any, **options: Any) -> None:
        raise DiskFull("No space left on device")

    monkeypatch.setattr(sandbox, "write", full)
    with pytest.raises(WorkspaceError, match="^disk full$"):
        await call("edit", path="x", old="", new="y")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ExecResult(0, b"noise", b""), "pass"),
        (ExecResult(1, b"got 3 in 0.12s\n", b""), "got 3 in 0s\nfail"),
        (ExecResult(1, b"", b""), "fail"),
        (ExecResult(137, b"", b"", timed_out=True), "fail: timed out"),
        (ExecResult(0, b"", b"", timed_out=True), "fail: timed out"),
        (ExecResult(137, b"tick 2683563\n", b"Terminated", timed_out=True), "fail: timed out"),
        (ExecResult(137, b"tick", b"", timed_out=True, oom=True), "fail: timed out"),
        (ExecResult(137, b"a", b"", oom=True), "a\nfail: out of memory"),
    ],
)
async def test_test_says_pass_or_the_output_and_fail(make_sandbox: Any, result: ExecResult, text: str) -> None:
    context = ToolContext(Workspace(make_sandbox(run=lambda sandbox, argv: result)), SETTINGS, ("python", "t.py"))
    answer = await preset("nano").tools["test"].run({}, context)
    assert answer.text == text and answer.facts == {"passed": float(text == "pass")}


def test_durations_and_addresses_are_blotted_out_of_test_output() -> None:
    text = "<f object at 0x7f1b2c3d4e5f> Ran 3 tests in 0.001s, 12.5 seconds, x = 1.5, 0x1f"
    assert stable(text) == "<f object at 0x> Ran 3 tests in 0s, 0s, x = 1.5, 0x1f"


async def test_test_without_a_command_says_so(sandbox: Any) -> None:
    with pytest.raises(ToolError, match="no tests here"):
        await preset("nano").tools["test"].run({}, ToolContext(Workspace(sandbox), SETTINGS, ()))


async def test_todo_keeps_its_list_in_the_harness(call: Any) -> None:
    for text in ("add a b", "add c", "add c", "done c"):
        assert (await call("todo", text=text)).text == "ok"
    todos = call.context.todos
    assert (todos.open, todos.opened) == (["a b", "c"], 3)
    for text, words in (("done x", "no todo x"), ("add", "say add X"), ("drop c", "say add X"), ("", "say add X")):
        with pytest.raises(ToolError, match=words):
            await call("todo", text=text)


async def test_shell_reports_output_and_status(make_sandbox: Any) -> None:
    answers = {"a": ExecResult(0, b"x\n", b""), "b": ExecResult(2, b"x", b"y"), "c": ExecResult(0, b"", b"")}
    fake = make_sandbox(run=lambda sandbox, argv: answers[argv])
    context = ToolContext(Workspace(fake), SETTINGS, ())
    shell = preset("full").tools["shell"]
    assert [(await shell.run({"command": c}, context)).text for c in "abc"] == ["x", "xy\nexit 2", "ok"]


async def test_infra_errors_pass_through_every_tool(call: Any, sandbox: Any, monkeypatch: Any) -> None:
    async def dead(*args: Any, **options: Any) -> None:
        raise SandboxDied("gone")

    for name in ("run", "read", "write", "export"):
        monkeypatch.setattr(sandbox, name, dead)
    for name, tool in preset("full").tools.items():
        if name not in ("todo", "done"):
            with pytest.raises(InfraError):
                await call(name, **{p: p for p in tool.parameters})
    with pytest.raises(InfraError):
        await grep(call, "x")


def test_the_nano_preset_is_the_vocabularys_and_has_no_words() -> None:
    nano = preset("nano")
    assert {name: tuple(tool.parameters) for name, tool in nano.tools.items()} == TOOL_PARAMETERS
    assert nano.system == "" and all("description" not in s["function"] for s in nano.schemas)


def test_the_full_preset_describes_every_tool_to_endpoints() -> None:
    full = preset("full")
    assert set(full.tools) == {*TOOL_PARAMETERS, "shell"} and "done" in full.system and full.summary_query
    for item in full.schemas:
        function = item["function"]
        assert len(describe(function["name"])) > 60 and function["description"] == describe(function["name"])
        assert function["parameters"]["required"] == list(function["parameters"]["properties"])
    with pytest.raises(ValueError, match="no harness preset 'x'; there are nano, full, minimal, patch, search_replace"):
        preset("x")


def test_the_harness_hash_covers_what_a_policy_sees_and_nothing_else() -> None:
    base = harness_hash(HarnessSettings(), "chat")
    assert base == harness_hash(HarnessSettings(), "chat") and len(base) == 16
    assert base == harness_hash(HarnessSettings(temperature=0.0, max_turns=3, max_session_tokens=99), "chat")
    assert len({base, harness_hash(HarnessSettings(), "other"), harness_hash(HarnessSettings(max_matches=7), "chat"),
                harness_hash(HarnessSettings(preset="full"), "chat")}) == 4  # fmt: skip
