"""`docs/harness.md` names every option, event and item that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from app_lab import fixer, serving
from typer.main import get_command

from etude.agent.app.config import Config, IndexTable, SignalsTable, WebTable
from etude.agent.app.terminal import HELP
from etude.cli.main import app

PAGE = (Path(__file__).parents[3] / "docs" / "harness.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_page_lists_the_options_of_the_agent() -> None:
    command = get_command(app).commands["agent"]  # type: ignore[attr-defined]
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")} - {"--help"}
    assert set(re.findall(r"--[a-z][a-z-]*", section("Options"))) - {"--all"} == options - {"--all"}
    assert "--all" in section("Options")


def test_the_page_lists_the_keys_of_the_settings_file() -> None:
    tables = {"index": IndexTable, "web": WebTable, "signals": SignalsTable}
    flat = {name for name in Config.model_fields if name not in tables and name != "mcp"}
    inner = {f"`[{name}]` `{key}`" for name, table in tables.items() for key in table.model_fields}
    rows = [row.split(" | ")[0] for row in section("Settings").splitlines() if row.startswith("| `")]
    named = {name for row in rows if "`[" not in row for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == flat and {row.removeprefix("| ") for row in rows if "`[" in row} == inner | {"`[mcp.NAME]`"}


def test_the_page_lists_the_words_of_the_terminal() -> None:
    words = set(re.findall(r"/[a-z]+", HELP)) - {"/exit"}
    assert words == set(re.findall(r"`(/[a-z]+)", section("At the terminal")))


def test_the_page_lists_the_verbs_of_the_fleet() -> None:
    verbs = set(get_command(app).commands["agents"].commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"`etude agents ([a-z]+)", section("Several at once"))) == verbs


def test_every_event_and_item_of_a_session_is_on_the_page(shop: Path, etude: object) -> None:
    with serving(fixer) as lab:
        done = etude("agent", "--json", "-p", "fix total", "-m", lab.url, folder=shop)  # type: ignore[operator]
    for event in done.events:
        assert f"`{event['type']}`" in section("Events")
        for key in event.get("item", {}):
            assert f"`{key}`" in section("Events"), event
