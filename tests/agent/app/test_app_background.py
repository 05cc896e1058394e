"""Agents in the background: real processes, worktrees and sandboxes; killed, resumed, merged, refused."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from app_lab import SHOP, fixer, git, parrot, serving, turns

from etude.agent.git_links.home import session_files
from etude.core.trace.reader import read_session

Etude = Callable[..., Any]


def start(etude: Etude, shop: Path, url: str, request: str) -> str:
    done = etude("agent", "--background", "--json", "-p", request, "-m", url, folder=shop)
    assert done.code == 0, done.err
    return json.loads(done.out)["id"]


def states(etude: Etude) -> dict[str, str]:
    return {row["id"]: row["state"] for row in json.loads(etude("agents", "ls", "--json").out)["agents"]}


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    until_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until_s, "it did not come to pass"
        time.sleep(0.2)


def process_of(name: str) -> int:
    """The process that works for the agent."""
    return next(pid for pid in _members() if name in _words(pid))


def _members() -> list[int]:
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and "etude.agent.app.background.process" in _words(int(name))
    ]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


@pytest.mark.walls
def test_an_agent_works_in_its_own_tree_and_its_work_is_merged(shop: Path, etude: Etude) -> None:
    with serving(fixer) as lab:
        name = start(etude, shop, lab.url, "fix total")
        until(lambda: states(etude)[name] == "done")
        assert (shop / "shop.py").read_text() == SHOP and git(shop, "status", "--porcelain") == ""
        seen = etude("agents", "attach", name)
    assert seen.code == 0 and "Fixed the sign in shop.py." in seen.out and f"{name}: done" in seen.out
    assert "1 files of agent" in etude("agents", "rm", name).err
    merged = etude("agents", "merge", name, folder=shop)
    assert merged.code == 0 and "staged" in merged.out
    assert git(shop, "diff", "--cached", "--name-only") == "shop.py\n"
    assert (shop / "shop.py").read_text() == SHOP.replace("-=", "+=")
    assert etude("agents", "rm", name).code == 0 and states(etude) == {}
    assert git(shop, "branch", "--list", "etude/*") == "" and git(shop, "worktree", "list").count("\n") == 1


@pytest.mark.nightly
@pytest.mark.walls
def test_a_merge_that_conflicts_is_refused_with_what_to_do_and_changes_nothing(shop: Path, etude: Etude) -> None:
    with serving(fixer) as lab:
        name = start(etude, shop, lab.url, "fix total")
        until(lambda: states(etude)[name] == "done")
    (shop / "shop.py").write_text(SHOP.replace("out -= x", "out = out + x"))
    loose = etude("agents", "merge", name, folder=shop)
    assert loose.code != 0 and "uncommitted changes in shop.py" in loose.err
    git(shop, "commit", "-qam", "Mine")
    refused = etude("agents", "merge", name, folder=shop)
    assert refused.code != 0 and "git rebase main" in refused.err and f"etude agents resume {name}" in refused.err
    assert git(shop, "status", "--porcelain") == "" and "out = out + x" in (shop / "shop.py").read_text()


@pytest.mark.nightly
def test_a_merge_commit_names_the_request(shop: Path, etude: Etude) -> None:
    git(shop, "config", "user.name", "p")
    with serving(fixer) as lab:
        name = start(etude, shop, lab.url, "fix total")
        until(lambda: states(etude)[name] == "done")
    assert etude("agents", "merge", name, "--merge").code == 0
    assert git(shop, "log", "-1", "--format=%s") == f"Merge etude/{name}: fix total\n"


@pytest.mark.walls
def test_a_killed_agent_is_dead_and_goes_on_where_it_was(shop: Path, homes: Path, etude: Etude) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if messages[-1]["content"] == "Go on where you left off.":
            return {"text": f"went on after {messages[-2]['content'][:11]}"}
        return {"calls": [("run_terminal_cmd", {"command": "sleep 100"})]}

    with serving(play) as lab:
        name = start(etude, shop, lab.url, "wait")
        until(lambda: len(lab.asked) == 1 and any("completion" in f.read_text() for f in homes.glob("*.jsonl")))
        assert states(etude)[name] == "running"
        assert "is running" in etude("agents", "resume", name).err
        assert "is running" in etude("session", "forget", next(homes.glob("*.jsonl")).stem).err
        os.kill(process_of(name), signal.SIGKILL)
        until(lambda: states(etude)[name] == "dead")
        assert etude("agents", "resume", name).code == 0
        until(lambda: states(etude)[name] == "done")
    assert "went on after interrupted" in etude("agents", "attach", name).out
    (file,) = session_files(homes)
    assert etude("session", "forget", read_session(file).header.session_id).code == 0
    assert session_files(homes) == [] and [p.name for p in homes.with_name("agents").iterdir()] == [".start"]
    assert git(shop, "branch", "--list", "etude/*") == ""


@pytest.mark.nightly
def test_an_agent_hears_what_is_said_and_stops(shop: Path, homes: Path, etude: Etude) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if messages[-1]["content"] in ("faster", "next"):
            return parrot(messages)
        return {"calls": [("run_terminal_cmd", {"command": "sleep 100" if turns(messages) else "sleep 3"})]}

    with serving(play) as lab:
        name = start(etude, shop, lab.url, "wait")
        until(lambda: len(lab.asked) == 1)
        assert etude("agents", "say", name, "faster").code == 0
        assert etude("agents", "say", name, "next", "--queue").code == 0
        until(lambda: states(etude)[name] == "done")
        deaf = etude("agents", "say", name, "hello?")
        assert "reads no messages" in deaf.err
        other = start(etude, shop, lab.url, "wait")
        until(lambda: states(etude)[other] == "running" and len(lab.asked) >= 4)
        assert etude("agents", "stop", other).code == 0
        assert states(etude)[other] == "stopped"
    (file, _) = session_files(homes)
    heard = [(e.data["delivery"], e.data["text"]) for e in read_session(file).of("message") if e.data.get("delivery")]
    assert heard == [("steer", "faster"), ("queue", "next")]


def test_without_a_repository_or_a_commit_it_says_what_to_do(tmp_path: Path, homes: Path, etude: Etude) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    with serving(parrot) as lab:
        bare = etude("agent", "--background", "-p", "hi", "-m", lab.url, folder=folder)
        git(folder, "init", "-q")
        empty = etude("agent", "--background", "-p", "hi", "-m", lab.url, folder=folder)
    assert bare.code == empty.code == 2 and "run git init and commit" in bare.err and "run git init" in empty.err


@pytest.mark.walls
@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.nightly)])
def test_agents_at_once_keep_out_of_each_others_way(count: int, shop: Path, homes: Path, etude: Etude) -> None:
    def play(messages: list[dict[str, Any]]) -> dict[str, Any]:
        if turns(messages) == 0:
            request = messages[-1]["content"]
            return {"calls": [("write", {"file_path": "mine.txt", "contents": request}),
                              ("run_terminal_cmd", {"command": "cat mine.txt; ls .."})]}  # fmt: skip
        return {"text": messages[-1]["content"]}

    with serving(play) as lab:
        lab.hold.clear()  # all of them are there before any is answered
        names = [start(etude, shop, lab.url, f"agent {i}") for i in range(count)]
        until(lambda: len(lab.asked) == count)
        assert set(states(etude).values()) == {"running"}
        lab.hold.set()
        until(lambda: set(states(etude).values()) == {"done"}, 90)
    home = Path(os.environ["ETUDE_AGENTS"])
    assert [(home / name / "tree" / "mine.txt").read_text() for name in names] == [f"agent {i}" for i in range(count)]
    assert len(session_files(homes)) == count and git(shop, "status", "--porcelain") == ""
