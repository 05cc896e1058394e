"""The MCP client, against real servers of the official SDK over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.agent import build_agent
from etude.agent.harness.approval import ApprovalAnswer, Approver, Effect
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.mcp import log as log_module
from etude.agent.harness.mcp.config import project_servers, servers_of
from etude.agent.harness.mcp.connection import McpConnection, McpError
from etude.agent.harness.mcp.log import ServerLog, log_file
from etude.agent.harness.mcp.server import McpConfigError, McpServer
from etude.agent.harness.mcp.servers import MAX_NAME_CHARS, McpServers, presented_name
from etude.agent.harness.mcp.trust import ServerTrust
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message, ToolCall

SCRIPT = Path(__file__).with_name("mcp_server.py")
SETTINGS = HarnessSettings.full(preset="minimal", max_tool_lines=20)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where servers' logs lie."""
    monkeypatch.setenv("ETUDE_SESSIONS", str(tmp_path / "state" / "sessions"))


def stdio(*args: str, **more: Any) -> McpServer:
    return McpServer("shelf", command=sys.executable, args=(str(SCRIPT), *args), trusted=True, **more)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Any]:
    opened: list[McpServers] = []

    async def start(*servers: McpServer, **options: Any) -> McpServers:
        found = await McpServers.start(
            servers, tmp_path, trust=ServerTrust(tmp_path / "state" / "trust.json"), **options
        )
        opened.append(found)
        return found

    yield start
    for servers in opened:
        await servers.close()


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SCRIPT), "--http", str(port)], stderr=subprocess.DEVNULL)
    for _ in range(200):
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait()


async def answers(tmp_path: Path, servers: McpServers, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    """What the policy sees of calls, each in a turn of its own."""
    turns = [Message("assistant", calls=(ToolCall(f"c{i}", *call),)) for i, call in enumerate(calls)]
    policy = ScriptedPolicy([*turns, Message("assistant", "over")])
    services = AgentServices(mcp=servers.tools)
    agent = build_agent(
        SETTINGS, policy, AgentDependencies(LocalFolder(tmp_path), TaskFacts("t", "go"), services=services, **options)
    )
    session = (await agent.run()).session
    return [("failed: " if entry.data["failed"] else "") + entry.data["text"] for entry in session.of("tool_result")]


async def test_tools_of_a_server_over_stdio_are_the_agents_own(started: Any, tmp_path: Path) -> None:
    servers = await started(stdio())
    assert servers.problems == []
    assert await answers(tmp_path, servers, ("mcp__shelf__add", {"a": 2, "b": 3})) == ["5"]
    schema = next(tool.schema for tool in servers.tools if tool.name == "mcp__shelf__add")["function"]
    assert schema["description"] == "The sum of two numbers."
    assert schema["parameters"]["properties"]["a"]["type"] == "integer"


async def test_tools_of_a_server_over_http_are_the_agents_own(started: Any, tmp_path: Path, http_url: str) -> None:
    servers = await started(McpServer("web", url=http_url, trusted=True))
    assert servers.problems == []
    report = await answers(tmp_path, servers, ("mcp__web__add", {"a": 2, "b": 3}), ("mcp__web__fail", {}))
    assert report[0] == "5"
    assert report[1].startswith("failed: ") and "the shelf is empty" in report[1]


async def test_failures_are_typed_answers_and_cost_no_session(started: Any, tmp_path: Path) -> None:
    servers = await started(stdio(timeout_s=3))
    wrong, empty, late, after = await answers(
        tmp_path,
        servers,
        ("mcp__shelf__add", {"a": "x"}),
        ("mcp__shelf__fail", {}),
        ("mcp__shelf__slow", {"seconds": 30}),
        ("mcp__shelf__add", {"a": 1, "b": 1}),
    )
    assert wrong.startswith("failed: ") and "b" in wrong
    assert empty.startswith("failed: ") and "the shelf is empty" in empty
    assert late == "failed: the MCP server shelf did not answer within 3 s"
    assert after == "2"


async def test_a_server_that_dies_is_started_once_more_and_then_reported(started: Any, tmp_path: Path) -> None:
    servers = await started(stdio())
    add = ("mcp__shelf__add", {"a": 1, "b": 1})
    first, again, second, down = await answers(
        tmp_path, servers, ("mcp__shelf__die", {}), add, ("mcp__shelf__die", {}), add
    )
    assert "was started again" in first and again == "2"
    assert "died again and stays down" in second and "not running" in down


async def test_pictures_are_reported_and_long_answers_cut_with_a_remedy(started: Any, tmp_path: Path) -> None:
    servers = await started(stdio())
    picture, text = await answers(tmp_path, servers, ("mcp__shelf__picture", {}), ("mcp__shelf__long", {"lines": 500}))
    assert picture == "[image, image/png, 300 bytes, not shown]"
    assert text.count("\n") < 30 and "$OUTPUTS/1.txt" in text and "line 499" in text


async def test_a_tool_of_a_server_is_asked_for_as_a_command_is(started: Any, tmp_path: Path) -> None:
    servers = await started(stdio())
    asked: list[Effect] = []

    async def ask(call: ToolCall, effect: Effect) -> ApprovalAnswer:
        asked.append(effect)
        return ApprovalAnswer("session")

    add = ("mcp__shelf__add", {"a": 1, "b": 1})
    assert await answers(tmp_path, servers, add, add, approver=Approver("commands", ask)) == ["2", "2"]
    assert asked == ["execute"]  # once: the answer holds for the tool


async def test_the_harness_hash_changes_with_the_list_of_tools(started: Any) -> None:
    both = [await started(stdio()), await started(stdio("--without", "long"))]
    policy, facts = ScriptedPolicy([]), TaskFacts("t", "go")
    hashes = [session_header(SETTINGS, policy, facts, services=AgentServices(mcp=s.tools)).harness for s in both]
    again = session_header(SETTINGS, policy, facts, services=AgentServices(mcp=both[0].tools)).harness
    assert len({*hashes, session_header(SETTINGS, policy, facts).harness}) == 3
    assert again == hashes[0]


async def test_a_trained_vocabulary_takes_no_tools_of_servers(started: Any, tmp_path: Path) -> None:
    servers = await started(stdio())
    with pytest.raises(ValueError, match="preset nano takes no tools"):
        build_agent(
            HarnessSettings(), ScriptedPolicy([]), AgentDependencies(LocalFolder(tmp_path), TaskFacts("t", "go"),
            services=AgentServices(mcp=servers.tools))
        )  # fmt: skip


async def test_a_server_that_does_not_start_is_reported_with_its_own_words(started: Any) -> None:
    broken = McpServer("broken", command=sys.executable, args=("-c", "raise SystemExit('no licence')"), trusted=True)
    missing = McpServer("missing", command="no-such-program", trusted=True)
    silent = McpServer(
        "silent", command=sys.executable, args=("-c", "input(); input()"), trusted=True, startup_timeout_s=1.0
    )
    servers = await started(broken, missing, silent, stdio())
    assert [tool.name for tool in servers.tools if tool.name.endswith("add")] == ["mcp__shelf__add"]
    report = sorted(servers.problems)
    assert "broken can't be started" in report[0] and "no licence" in report[0]
    assert "no-such-program" in report[1]
    assert "silent" in report[2] and "within 1 s" in report[2]


async def test_secrets_are_filled_in_and_never_shown(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELF_TOKEN", "s3cr3t-of-the-shelf")
    servers = await started(stdio(env={"TOKEN": "${SHELF_TOKEN}", "PLAIN": "${NO_SUCH:-plain text}"}))
    token, plain = await answers(
        tmp_path,
        servers,
        ("mcp__shelf__environment", {"name": "TOKEN"}),
        ("mcp__shelf__environment", {"name": "PLAIN"}),
    )
    assert (token, plain) == ("${SHELF_TOKEN}", "plain text")


async def test_a_variable_that_is_not_set_is_named(started: Any) -> None:
    servers = await started(stdio(env={"TOKEN": "${SHELF_TOKEN_UNSET}"}, source=".mcp.json"))
    assert servers.tools == () and "needs the variable SHELF_TOKEN_UNSET" in servers.problems[0]


async def test_a_projects_server_starts_only_when_approved_and_the_approval_is_remembered(
    started: Any, tmp_path: Path
) -> None:
    row = {"command": sys.executable, "args": [str(SCRIPT)]}
    asked: list[str] = []

    def write(**more: Any) -> list[McpServer]:
        (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"shelf": {**row, **more}}}))
        return project_servers(tmp_path)

    async def approve(server: McpServer) -> bool:
        asked.append(server.shown)
        return True

    async def refuse(server: McpServer) -> bool:
        return False

    assert (await started(*write())).tools == ()  # no one to ask
    assert "was not approved" in (await started(*write(), approve=refuse)).problems[0]
    assert (await started(*write(), approve=approve)).tools
    assert (await started(*write())).tools  # remembered
    assert asked == [f"{sys.executable} {SCRIPT}"]
    assert (await started(*write(env={"LD_PRELOAD": "./evil.so"}))).tools == ()  # another description is another server


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", 'no "mcpServers" table'),
        ('{"mcpServers": {"a": 1}}', "must be a table"),
        ('{"mcpServers": {"a": {}}}', "needs a 'command'"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}', "type 'sse'"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"KEY": 5}}}}', "'env' must be a table of texts"),
    ],
)
def test_a_bad_project_file_is_reported_with_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    with pytest.raises(McpConfigError, match=message) as report:
        project_servers(tmp_path)
    assert ".mcp.json" in str(report.value)


def test_a_project_file_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text('{"mcpServers": {"a": {"command": "PRIVATE"}}}')
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".mcp.json").symlink_to("../private.json")
    with pytest.raises(McpConfigError, match="leads out") as refused:
        project_servers(folder)
    assert "PRIVATE" not in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_in_a_project_file_is_dropped(tmp_path: Path, encoding: str) -> None:
    (tmp_path / ".mcp.json").write_bytes('{"mcpServers": {"a": {"command": "x"}}}'.encode(encoding))
    assert [server.command for server in project_servers(tmp_path)] == ["x"]


@pytest.mark.parametrize("data", [b"[" * 100_000, b"\0\xff", b" " * (1 << 20) + b"{}", b'{"mcpServers": "\xe9"}'])
def test_nothing_that_a_project_file_holds_raises_anything_else(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".mcp.json").write_bytes(data)
    with pytest.raises(McpConfigError):
        project_servers(tmp_path)


def test_settings_tables_are_trusted_and_strict() -> None:
    row = {"command": "shelf", "args": ["-q"], "timeout_s": 5}
    assert servers_of({"shelf": row}, "s.toml", trusted=True) == [
        McpServer("shelf", command="shelf", args=("-q",), timeout_s=5, trusted=True, source="s.toml")
    ]
    with pytest.raises(McpConfigError, match="unknown field 'comand'"):
        servers_of({"a": {"comand": "x"}}, "s.toml", trusted=True)


@given(st.text(max_size=90), st.text(max_size=90), st.text(max_size=90), st.text(max_size=90))
def test_names_fit_endpoints_and_differ_where_tools_do(server: str, tool: str, server_2: str, tool_2: str) -> None:
    names = [presented_name(server, tool), presented_name(server_2, tool_2)]
    for name in names:
        assert 0 < len(name) <= MAX_NAME_CHARS and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    if f"{server}__{tool}" != f"{server_2}__{tool_2}":
        assert names[0] != names[1]


async def test_closing_ends_the_servers_processes(tmp_path: Path) -> None:
    servers = await McpServers.start([stdio()], tmp_path, trust=ServerTrust(tmp_path / "trust.json"))
    children = Path("/proc/self/task/").joinpath(str(threading.get_native_id()), "children")
    before = children.read_text().split()
    await servers.close()
    await asyncio.sleep(0)
    assert len(children.read_text().split()) < len(before)


def test_secrets_are_hidden_by_name_and_folders_are_not() -> None:
    server = McpServer(
        "shelf",
        command="shelf",
        args=("--root", "${HOME}", "--token=${SHELF_TOKEN}"),
        env={"API_KEY": "literal-secret", "MODE": "production"},
        headers={"Authorization": "Bearer ${SHELF_WORD}"},
    )
    environ = {"HOME": "/home/someone", "SHELF_TOKEN": "token-value", "SHELF_WORD": "word-value"}
    assert server.secrets(environ) == {
        "literal-secret": "[API_KEY]",
        "token-value": "${SHELF_TOKEN}",
        "word-value": "${SHELF_WORD}",
    }
    assert server.fill_variables(environ).headers == {"Authorization": "Bearer word-value"}


@given(st.sampled_from(["command", "args", "env", "cwd", "url", "headers", "name"]), st.text(min_size=1, max_size=9))
def test_an_approval_holds_for_nothing_that_decides_what_is_started(part: str, text: str) -> None:
    server = McpServer("shelf", command="shelf", args=("-q",), env={"A": "b"})
    value: Any = {"args": (text,), "env": {"C": text}, "headers": {"C": text}}.get(part, f"{text}/other")
    other = dataclasses.replace(server, **{part: value})
    place = Path("/project")
    assert other.digest(place) != server.digest(place) != server.digest(Path("/elsewhere"))
    assert dataclasses.replace(server, timeout_s=9.0, source="x").digest(place) == server.digest(place)


async def test_a_servers_noise_goes_to_its_log_and_not_to_the_person(
    started: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    servers = await started(stdio())
    assert await answers(tmp_path, servers, ("mcp__shelf__noise", {})) == ["quiet again"]
    assert "".join(capfd.readouterr()) == ""
    log = log_file("shelf").read_text()
    assert "NOISE on stdout" in log and "NOISE on stderr" in log and "Traceback" not in log
    assert log_file("shelf").stat().st_mode & 0o077 == 0, "a server's words are its person's alone"


def test_a_log_begins_again_when_it_is_large_and_tells_of_its_own_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        log = ServerLog("shelf")
        assert log.last_line() == "", "what an earlier start said is not of this one"
        log.stream.write("why it failed\n")
        assert log.last_line() == "why it failed"
        log.close()
    monkeypatch.setattr(log_module, "MAX_BYTES", 10)
    ServerLog("shelf").close()
    assert log_file("shelf").read_text() == ""


# A server without the SDK: the test asks what one of its tools does to the process.
BARE = """
import json, os, sys, time

def answer(row, result):
    print(json.dumps({"jsonrpc": "2.0", "id": row["id"], "result": result}), flush=True)

for line in sys.stdin:
    row = json.loads(line)
    open("methods", "a").write(row["method"] + "\\n")
    if row.get("method") == "initialize":
        version = row["params"]["protocolVersion"]
        answer(row, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "b", "version": "1"}})
    elif row.get("method") == "tools/list":
        answer(row, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("end", "look")]})
    elif row.get("method") == "tools/call" and row["params"]["name"] == "look":
        answer(row, {"content": [{"type": "text", "text": "seen"}]})
    elif row.get("method") == "tools/call":
        END
    elif "id" in row:
        print(json.dumps({"jsonrpc": "2.0", "id": row["id"], "error": {"code": -32601, "message": "no method"}}), flush=True)
"""
ENDS = {
    "exits": "os._exit(3)",
    "exits in the middle of a message": "sys.stdout.write('{\"jsonrpc\":'); sys.stdout.flush(); os._exit(1)",
    "closes its stdout and exits later": "os.close(1); time.sleep(0.1); os._exit(0)",
    "is killed": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_death_of_a_server_ends_a_call_before_its_time_limit(tmp_path: Path, end: str) -> None:
    server = McpServer(
        "bare", command=sys.executable, args=("-c", BARE.replace("END", end)), timeout_s=30, trusted=True
    )
    connection = McpConnection(server, tmp_path)
    await connection.open()
    with pytest.raises(McpError, match="died during this call and was started again"):
        await connection.call("end", {})
    assert await connection.call("look", {}) == ("seen", False)
    await connection.close()
    methods = (tmp_path / "methods").read_text().split()
    assert methods[0] == "server/discover" and methods.count("server/discover") == 1, (
        "an older server is not asked again"
    )
