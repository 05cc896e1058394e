"""`etude session` on sessions of use: found by id, tied to commits, measured, forgotten."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from here import Here, document
from session_lab import FOREIGN, record

from etude.core.trace.change import TextChange
from etude.core.trace.entry import SessionHeader
from etude.core.trace.writer import SessionWriter


def test_sessions_of_use_are_found_by_their_ids(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_SESSIONS", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    record(tmp_path / "home" / "x.jsonl", name="abc-1")
    record(tmp_path / "home" / "y.jsonl", name="abc-12")
    assert document(here("session", "list", "--json"))["total"] == 2
    assert document(here("session", "show", "abc-1", "--json"))["session_id"] == "abc-1"
    assert document(here("session", "show", "abc-12", "--json"))["session_id"] == "abc-12"
    assert "2 sessions begin so" in here("session", "show", "abc").stderr
    assert "no session has it" in here("session", "show", "xyz").stderr
    shown = here("session", "show", str(tmp_path / "home"))
    assert (
        shown.returncode == 1
        and f"is a folder; give a session's file: etude session list {tmp_path / 'home'}" in shown.stderr
    )
    assert here("session", "diff", "abc-1", "abc-12").returncode == 0
    brought = document(here("session", "import", str(FOREIGN / "codex.jsonl"), "--json"))
    assert brought["file"] == str(tmp_path / "home" / "codex-019a.jsonl")
    assert "turn 1" in here("session", "show", "codex").stdout


@pytest.fixture
def used(tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a session that wrote into it, committed; the sessions lie in the default place."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ETUDE_SESSIONS", raising=False)
    root = tmp_path / "repo"
    root.mkdir()
    monkeypatch.chdir(root)
    home = tmp_path / "state" / "etude" / "sessions"
    home.mkdir(parents=True)
    facts = {"instruction": "do", "test_command": [], "workspace": str(root)}
    writer = SessionWriter(
        home / "u.jsonl", SessionHeader("u-1", policy="m", created_unix_s=time.time() - 900, facts=facts)
    )
    writer.append("message", {"role": "user", "text": "do"})
    (root / "a.py").write_text("agent_line = 1\n")
    writer.append("edit", TextChange("a.py", None, "agent_line = 1\n").to_entry("c"))
    writer.append("end", {"reason": "done"})
    writer.close()
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=P", "-c", "user.email=p@example.com", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], check=True)
    return root


def test_link_signals_and_forget_work_together(here: Here, used: Path, tmp_path: Path) -> None:
    assert "has no link" in here("session", "link").stdout
    assert "signals are off" in here("session", "signals").stdout
    assert document(here("session", "signals", "--on", "--json"))["measured_now"] == 2
    assert "1 of 1 added lines were written by 1 sessions of 1" in here("session", "link", "HEAD", "--write").stdout
    assert "a.py:1-1  u-1" in here("session", "link").stdout
    shown: dict[str, Any] = document(here("session", "signals", "--json"))
    assert {moment: found["share"] for moment, found in shown["kept"].items()} == {"5min": 1.0, "commit": 1.0}
    forgotten = here("session", "forget", "u-1")
    assert forgotten.returncode == 0 and "nothing of it is left here" in forgotten.stdout
    assert "has no link" in here("session", "link").stdout
    assert document(here("session", "signals", "--json"))["rows"] == 0
    again = here("session", "forget", "u-1")
    assert again.returncode == 1 and "no session u-1 lies under" in again.stderr


def test_link_outside_of_a_repository_is_one_clear_line(here: Here, tmp_path: Path) -> None:
    done = here("session", "link", "HEAD", "--repository", str(tmp_path))
    assert done.returncode == 1 and "is in no git repository" in done.stderr and done.stderr.count("\n") == 1


def test_the_sessions_of_use_lie_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.agent.git_links.home import sessions_home

    monkeypatch.setenv("ETUDE_SESSIONS", str(tmp_path))
    assert sessions_home() == tmp_path
    monkeypatch.delenv("ETUDE_SESSIONS")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert sessions_home() == Path("/state/etude/sessions")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert sessions_home() == Path(os.path.expanduser("~/.local/state/etude/sessions"))
