"""The agent at a terminal: a real process on a pseudo-terminal of 80 columns, typed at, read as a person sees it."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from app_lab import SHOP, fixer, parrot, serving, turns
from terminal_lab import terminal

from etude.agent.git_links.home import session_files
from etude.core.trace.reader import read_session

pytestmark = pytest.mark.walls

SHELF = Path(__file__).parents[1] / "harness" / "mcp_server.py"


def test_a_request_streams_and_edits_are_shown_as_coloured_diffs(shop: Path) -> None:
    with serving(fixer) as lab, terminal(shop, "-m", lab.url) as screen:
        screen.until("etude · fake", "/help")
        screen.type("fix total")
        screen.until(
            "» fix total",
            "Look first.",
            "-        out -= x",
            "+        out += x",
            "Fixed the sign in shop.py.",
            "✓ 400",
        )
        assert "\x1b[32m" in screen.raw and "\x1b[31m" in screen.raw
        screen.forget()
        screen.type("/diff")
        screen.until("update shop.py +1 -1", "+        out += x")
        screen.type("/undo")
        screen.until("took back shop.py")
        screen.forget()
        screen.type("/diff")
        screen.until("its edits changed nothing")
        assert (shop / "shop.py").read_text() == SHOP
        screen.forget()
        screen.type("and now?")
        screen.until("✓ 400", "and now?")
        screen.type("/quit")
        screen.until("etude agent --resume")
        assert screen.process.wait(10) == 0
    result = [m["content"] for m in lab.asked[-1]["messages"] if m["role"] == "user"]
    assert result[1].startswith("(The person took back your edits of shop.py") and result[1].endswith("and now?")


@pytest.mark.nightly
def test_words_steer_or_wait_and_ctrl_c_stops_then_leaves(shop: Path, homes: Path) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        last = messages[-1]
        if last["role"] == "tool" and "stopped" not in last["content"]:
            return {"text": "no one spoke"}
        if last["content"] == "begin":
            return {"calls": [("run_terminal_cmd", {"command": "sleep 2"})]}
        if last["content"] == "hang":
            return {"calls": [("run_terminal_cmd", {"command": "sleep 60"})]}
        return parrot(messages)

    with serving(play) as lab, terminal(shop, "-m", lab.url) as screen:
        screen.until("/help")
        screen.type("begin")
        screen.until("→ $ sleep 2")
        screen.type("then this", end="\x1b\r")
        screen.until("heard when it has finished: then this")
        screen.type("be quick")
        screen.until("heard before its next turn: be quick", "heard: be quick", "heard: then this")
        screen.type("hang")
        screen.until("→ $ sleep 60")
        screen.type("", end="\x03")
        screen.until("stopping", "stopped by the person")
        time.sleep(2.1)  # else it would be the second of two
        screen.type("", end="\x03")
        screen.until("Ctrl-C again leaves")
        screen.type("", end="\x03")
        screen.until("etude agent --resume")
        assert screen.process.wait(10) == 0
    (file,) = session_files(homes)
    heard = [(e.data["delivery"], e.data["text"]) for e in read_session(file).of("message") if e.data.get("delivery")]
    assert heard == [("steer", "be quick"), ("queue", "then this"), ("queue", "hang"), ("stop", "")]


def test_calls_are_asked_for_in_the_line_and_a_reason_is_reported(shop: Path) -> None:
    with serving(fixer) as lab, terminal(shop, "-m", lab.url, "--approval", "writes", NO_COLOR="1") as screen:
        screen.until("/help")
        screen.type("fix total")
        screen.until("? search_replace (write)", "allow it?")
        screen.type("maybe")
        screen.until("y, a(lways) or n REASON")
        screen.type("n not this file")
        screen.until("not allowed: not this file", "? run_terminal_cmd (execute)")
        screen.type("always")
        screen.until("✓ 400")
        assert (shop / "shop.py").read_text() == SHOP
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", screen.raw)
    assert lab.asked[2]["messages"][-1]["content"] == "not allowed: not this file"


@pytest.mark.nightly
def test_effort_changes_for_the_next_request_and_the_conversation_stays(shop: Path, homes: Path) -> None:
    with serving(parrot) as lab, terminal(shop, "-m", lab.url) as screen:
        screen.until("/help")
        screen.type("first")
        screen.until("heard: first")
        screen.type("/effort low")
        screen.until("effort: low")
        screen.type("second")
        screen.until("heard: second")
        screen.type("/status")
        screen.until("effort low", "2 turns")
        screen.type("", end="\x04")
        screen.until("etude agent --resume")
    assert lab.asked[1]["reasoning_effort"] == "low" and len(lab.asked[1]["messages"]) == 4
    assert len(session_files(homes)) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("said", ["\x1b]0;title\x07red \x1b[31m", "tab\tand \u202e"])
def test_what_a_model_says_can_not_steer_the_terminal(said: str, shop: Path) -> None:
    with (
        serving(lambda messages: {"text": said + " end"}) as lab,
        terminal(shop, "-m", lab.url, NO_COLOR="1") as screen,
    ):
        screen.until("/help")
        screen.type("hi")
        screen.until(" end", "✓ 100")
        assert "\x1b]0;" not in screen.raw and "\x1b[31m" not in screen.raw and "\u202e" not in screen.raw


def test_a_projects_server_is_asked_for_in_the_line_and_remembered(shop: Path) -> None:
    """The first request may be typed before the servers run: it waits for them."""
    row = {"command": sys.executable, "args": [str(SHELF)]}
    (shop / ".mcp.json").write_text(json.dumps({"mcpServers": {"shelf": row}}))

    def adds(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if turns(messages):
            return {"text": f"sum {messages[-1]['content']}"}
        return {"calls": [("mcp__shelf__add", {"a": 2, "b": 3})]}

    with serving(adds) as lab:
        with terminal(shop, "-m", lab.url) as screen:
            screen.until("? start the MCP server shelf, as", "with your rights", "allow it?")
            screen.type("/mcp")
            screen.until("servers start with the session")
            screen.type("y")
            screen.type("add")
            screen.until("sum 5")
            screen.forget()
            screen.type("/mcp")
            screen.until("shelf: ", "add")
            screen.type("", end="\x04")
            screen.until("etude agent --resume")
        with terminal(shop, "-m", lab.url) as screen:
            screen.type("add")
            screen.until("sum 5")
            assert "allow it?" not in screen.text


@pytest.mark.nightly
def test_the_person_has_it_summed_up_and_finds_words_and_sessions_again(shop: Path, homes: Path) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        last = messages[-1]["content"]
        return {"text": "in short: first"} if "summar" in last.lower() else {"text": f"heard: {last}"}

    with serving(play) as lab:
        with terminal(shop, "-m", lab.url) as screen:
            screen.until("/help")
            screen.type("/compact")
            screen.until("nothing to sum up yet")
            screen.type("first words")
            screen.until("heard: first words")
            screen.type("/compact keep the names")
            screen.until("summarized itself (1)")
            screen.forget()
            screen.type("second")
            screen.until("heard: second", "✓ 100")
            screen.forget()
            screen.type("\x1b[A\x1b[A\x1b[A", end="")  # second, /compact, first words
            screen.until("first words")
            screen.type("")
            screen.until("heard: first words")
            screen.type("", end="\x04")
            screen.until("etude agent --resume")
        with terminal(shop, "--resume") as screen:
            screen.until("  1  ", "first words", "which? [1]")
            screen.type("1")
            screen.until("it said last:", "heard: first words", "/help")
    (file,) = session_files(homes)
    session = read_session(file)
    query = next(e.data for e in session.of("message") if e.data.get("summary"))
    assert query["delivery"] == "queue" and len(session.of("summary")) == 1
    after = [message["content"] for message in lab.asked[-1]["messages"]]
    assert not any("heard: first words" in text for text in after[:-1]) and any(
        "in short: first" in text for text in after
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("round", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3, 4))])
def test_keys_while_something_is_printed_are_keys(round: int, shop: Path) -> None:
    """Ctrl-D in the middle of a flood of text leaves; Enter before it speaks."""
    flood = "\n".join(f"line {number}" for number in range(2000))
    with serving(lambda messages: {"text": flood}) as lab, terminal(shop, "-m", lab.url) as screen:
        screen.until("/help")
        screen.type("go")
        screen.until(f"line {round}")
        screen.type("", end="\x04")
        screen.until("etude agent --resume")
        assert screen.process.wait(10) == 0
