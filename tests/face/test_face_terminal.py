"""The agent at a terminal: a real process on a pseudo-terminal of 80 columns, typed at, read as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, SHOP
from face_lab import fixer, parrot, serving

from etude.link.home import session_files
from etude.trace.reader import read_session

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>])|\r")


class Screen:
    """What was shown, without the codes that move the cursor; `raw` has them."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self.terminal, self.process, self.raw = terminal, process, ""

    @property
    def text(self) -> str:
        return _ESCAPES.sub("", self.raw)

    def until(self, *wanted: str, seconds: float = 20.0) -> None:
        until_s = time.monotonic() + seconds
        while not all(words in self.text for words in wanted):
            assert time.monotonic() < until_s, f"{wanted} not in:\n{self.text}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.raw += os.read(self.terminal, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert all(words in self.text for words in wanted), f"{wanted} not in:\n{self.text}"

    def type(self, words: str, end: str = "\r") -> None:
        os.write(self.terminal, (words + end).encode())

    def forget(self) -> None:
        self.raw = ""


@contextmanager
def terminal(folder: Path, *words: str, **variables: str) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in variables else None
    process = subprocess.Popen(
        [*COMMAND, "agent", *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Screen(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


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
        screen.type("/undo")
        screen.until("took back shop.py")
        assert (shop / "shop.py").read_text() == SHOP
        screen.forget()
        screen.type("and now?")
        screen.until("✓ 400", "and now?")
        screen.type("/quit")
        screen.until("etude agent --resume")
        assert screen.process.wait(10) == 0
    told = [m["content"] for m in lab.asked[-1]["messages"] if m["role"] == "user"]
    assert told[1].startswith("(The person took back your edits of shop.py") and told[1].endswith("and now?")


def test_words_steer_or_wait_and_ctrl_c_stops_then_leaves(shop: Path, homes: Path) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        last = messages[-1]
        if last["role"] == "tool" and "stopped" not in last["content"]:
            return {"text": "nobody spoke"}
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


def test_calls_are_asked_for_in_the_line_and_a_reason_is_told(shop: Path) -> None:
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
        time.sleep(0.5)  # while something is printed the terminal itself takes Ctrl-D
        screen.type("", end="\x04")
        screen.until("etude agent --resume")
    assert lab.asked[1]["reasoning_effort"] == "low" and len(lab.asked[1]["messages"]) == 4
    assert len(session_files(homes)) == 1


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
