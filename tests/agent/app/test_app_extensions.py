"""What a session may use beyond its folder: offered where it can be had, left out with a line where not, ended with the session."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from app_lab import git, serving, turns

from etude.agent.app import indexing
from etude.agent.app.extensions import ExtensionOptions, Extensions, server_trust
from etude.agent.app.indexing import IndexProgress
from etude.agent.git_links.home import session_files
from etude.agent.harness.mcp.server import McpServer
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.reader import read_session

Etude = Callable[..., Any]
SHELF = Path(__file__).parents[1] / "harness" / "mcp_server.py"
LARGE = HarnessSettings.full(preset="search_replace")
EVERYTHING = ExtensionOptions(index=True, mcp=True, search="http://127.0.0.1:9/search")


def describe(folder: Path) -> McpServer:
    row = {"command": sys.executable, "args": [str(SHELF)]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"shelf": row}}))
    return McpServer("shelf", command=sys.executable, args=(str(SHELF),))


async def opened(
    wanted: ExtensionOptions, folder: Path, settings: HarnessSettings = LARGE, **more: Any
) -> tuple[Extensions, list[str]]:
    messages: list[str] = []
    return await Extensions.open(wanted, folder, settings, messages.append, **more), messages


async def test_settings_offer_what_is_there_and_nothing_else(shop: Path) -> None:
    for wanted, index, web in (
        (EVERYTHING, True, True),
        (ExtensionOptions(), False, False),
        (ExtensionOptions(index=True), True, False),
    ):
        found, messages = await opened(wanted, shop)
        settings = found.apply(LARGE)
        assert (settings.codebase_search, settings.web, messages) == (index, web, [])
        found.services.require(codebase_search=index, web=web)


@pytest.mark.parametrize(("preset", "index"), [("patch", True), ("minimal", False), ("nano", False), ("full", False)])
async def test_a_preset_gets_what_it_has_words_for(preset: str, index: bool, shop: Path) -> None:
    settings = HarnessSettings(preset=preset)  # type: ignore[arg-type]
    found, messages = await opened(ExtensionOptions(index=True), shop, settings)
    assert found.apply(settings).codebase_search is index and messages == []


async def test_a_server_of_the_project_is_asked_for_once_and_left_out_where_no_one_is_there(shop: Path) -> None:
    describe(shop)
    asked: list[str] = []

    async def ask(server: McpServer) -> bool:
        asked.append(server.name)
        return len(asked) > 1

    for approve, tools in ((None, 0), (ask, 0), (ask, 1), (None, 1)):
        found, messages = await opened(ExtensionOptions(mcp=True), shop, approve=approve)
        try:
            assert bool(found.services.mcp) is bool(tools)
            assert bool(messages) is not bool(tools) and all(
                "shelf" in line and "not approved" in line for line in messages
            )
            assert found.describe_servers()[0].startswith("shelf: " if tools else "the MCP server shelf")
        finally:
            await found.close()
    assert asked == ["shelf", "shelf"]


async def test_a_broken_description_costs_a_line_and_not_the_session(shop: Path) -> None:
    (shop / ".mcp.json").write_text("{")
    found, messages = await opened(EVERYTHING, shop)
    assert found.services.code_index is not None and "is not JSON" in messages[0] and found.problems == messages


async def test_a_folder_of_many_files_without_git_is_not_indexed_and_says_so(
    tmp_path: Path, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "MAX_LOOSE_FILES", 3)
    for count in (3, 4):
        folder = tmp_path / f"data-{count}"
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.txt").touch()
        found, messages = await opened(ExtensionOptions(index=True), folder)
        assert (found.services.code_index is None) == (count > 3)
        assert messages == [] if count == 3 else "git init" in messages[0]


async def test_a_cache_that_can_not_be_written_costs_the_search_alone(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found, messages = await opened(ExtensionOptions(index=True), shop)
    assert found.services.code_index is None and "set XDG_CACHE_HOME" in messages[0]


def test_a_long_indexing_is_reported_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    clock = iter([0.0, 1.0, 7.0])
    monkeypatch.setattr(indexing.time, "monotonic", lambda: next(clock))
    progress = IndexProgress(messages.append)
    for done in (0, 10, 400):
        progress(done, 1234)
    for done in (0, 5):
        IndexProgress(messages.append)(done, 5)
    assert messages == ["indexing 1,234 files…", "indexed 400 of 1,234 files"]


def searches(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Asks the index, says what it found."""
    if turns(messages):
        return {"text": messages[-1]["content"]}
    return {"calls": [("codebase_search", {"query": "sum of all items"})]}


@pytest.mark.walls
def test_the_agent_searches_the_folder_and_a_session_without_goes_on_with(
    shop: Path, homes: Path, etude: Etude
) -> None:
    """The index is offered unasked; taken up again without it, the session says that its tools are others."""
    with serving(searches) as lab:
        done = etude("agent", "-p", "look", "-m", lab.url, folder=shop)
        assert "shop.py:1" in done.out and "def total" in done.out, done.err
        offered = [{tool["function"]["name"] for tool in lab.asked[-1]["tools"]}]
        again = etude("agent", "-c", "-p", "look again", "--no-index", folder=shop)
        offered.append({tool["function"]["name"] for tool in lab.asked[-1]["tools"]})
    assert again.code == 0 and "no tool codebase_search" in again.out
    assert offered[0] - offered[1] == {"codebase_search"}
    (file,) = session_files(homes)
    session = read_session(file)
    (changed,) = session.of("harness")
    assert changed.data["harness"] != session.header.harness and session.header.settings["codebase_search"]
    assert git(shop, "status", "--porcelain") == ""


@pytest.mark.walls
def test_headless_leaves_out_servers_of_the_project_and_uses_those_that_are_trusted(
    shop: Path, tmp_path: Path, etude: Etude
) -> None:
    server = describe(shop)

    def adds(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if turns(messages):
            return {"text": messages[-1]["content"]}
        return {"calls": [("mcp__shelf__add", {"a": 2, "b": 3})]}

    with serving(adds) as lab:
        words = ("agent", "--json", "-p", "add", "-m", lab.url)
        left_out = etude(*words, folder=shop)
        server_trust().grant(server, shop)
        used = etude(*words, folder=shop)
        without = etude(*words, "--no-mcp", folder=shop)
    (message,) = [event["message"] for event in left_out.events if event["type"] == "notice"]
    assert "the MCP server shelf" in message and left_out.err == message + "\n"
    assert "no tool mcp__shelf" in left_out.events[-1]["message"]
    assert used.events[-1]["message"] == "5" and used.err == ""
    assert "no tool mcp__shelf" in without.events[-1]["message"] and without.err == ""


@pytest.mark.walls
def test_signals_are_collected_where_the_person_wants_them(
    shop: Path, homes: Path, tmp_path: Path, etude: Etude
) -> None:
    config = tmp_path / "agent.toml"
    signals = homes / "signals" / "signals.jsonl"
    with serving(lambda messages: {"text": "done"}) as lab:
        words = ("agent", "-p", "go", "-m", lab.url, "--config", str(config))
        config.write_text("")
        assert etude(*words, folder=shop).code == 0 and not signals.exists()
        config.write_text("[signals]\non = true")
        assert etude(*words, folder=shop).code == 0
        kinds = {(row["session_id"], row["kind"]) for row in map(json.loads, signals.read_text().splitlines())}
        assert len(kinds) == 4 and {kind for _, kind in kinds} == {"latency", "rejected"}
        config.write_text("[signals]\non = false")
        assert etude(*words, folder=shop).code == 0
    assert len(signals.read_text().splitlines()) == 4 and not (homes / "signals" / "on").exists()


@pytest.mark.walls
def test_a_search_address_offers_the_web(shop: Path, tmp_path: Path, etude: Etude) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('[web]\nsearch = "http://127.0.0.1:9/search"')

    def asks(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if turns(messages):
            return {"text": messages[-1]["content"]}
        return {"calls": [("web_search", {"search_term": "etude"})]}

    with serving(asks) as lab:
        done = etude("agent", "-p", "go", "-m", lab.url, "--config", str(config), folder=shop)
        names = {tool["function"]["name"] for tool in lab.asked[0]["tools"]}
    assert {"web_search", "web_fetch"} <= names and "the search endpoint can't be reached" in done.out, done.err


async def test_a_disk_that_fails_while_indexing_is_the_models_answer_and_no_crash(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.agent.code_index.index import Index
    from etude.agent.harness.tools.tool import ToolError

    def full(self: Index, **_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Index, "update", full)
    found, _ = await opened(ExtensionOptions(index=True), shop)
    assert found.services.code_index is not None
    with pytest.raises(ToolError, match="No space left.*search by text instead"):
        await asyncio.wait_for(found.services.code_index.search("x", limit=3, under=None), 5)
