"""Commits tied to sessions: notes, records and entries; through amend, rebase and squash as far as git takes notes along."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import etude
from etude.agent.git_links.agent_trace import sessions_in
from etude.agent.git_links.git import GitError, commit_id, install_hook, repository
from etude.agent.git_links.links import link_commit, link_lines
from etude.agent.git_links.notes import read_note
from etude.core.trace.reader import read_session
from etude.core.trace.schema import check_file

BODY = "def tally(items):\n    total = 0\n    for item in items:\n        total += item\n    return total\n"


def places(lab: Any, commit: str) -> list[tuple]:
    return [(p.path, p.session_id, p.start_line, p.end_line, p.state) for p in link_lines(lab.root, commit)]


@pytest.fixture
def done(lab: Any) -> str:
    """A commit with a session's lines between a person's."""
    lab.write("core.py", "import os\n\n")
    lab.commit("first")
    lab.session("s-1", ("core.py", f"import os\n\n{BODY}"), began=1.0)
    lab.write("core.py", f"import os, sys\n\n{BODY}\nPERSON = True\n")
    return lab.commit()


def test_a_commit_is_tied_by_note_record_and_entry(lab: Any, done: str) -> None:
    result = link_commit(lab.root, done, lab.found())
    assert (result.lines, result.added, result.busy) == ({"s-1": 5}, 8, ())
    assert places(lab, done) == [("core.py", "s-1", 3, 7, "exact")]
    [record] = read_note(lab.root, done)
    [line] = (lab.home / "s-1.agent-trace.jsonl").read_text().splitlines()
    assert json.loads(line) == record
    [entry] = read_session(lab.home / "s-1.jsonl").of("link")
    assert entry.data["commit"] == done and entry.data["lines"] == 5 and entry.data["record"] == record["id"]
    assert check_file(lab.home / "s-1.jsonl") == []


def test_the_record_is_an_agent_trace_record(lab: Any, done: str) -> None:
    link_commit(lab.root, done, lab.found())
    [record] = read_note(lab.root, done)
    assert set(record) <= {"version", "id", "timestamp", "vcs", "tool", "files", "metadata"}
    assert record["version"] == "0.1.0" and record["vcs"] == {"type": "git", "revision": done}
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", record["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["timestamp"])
    [file] = record["files"]
    [conversation] = file["conversations"]
    assert file["path"] == "core.py" and conversation["url"] == "urn:etude:session:s-1"
    assert conversation["contributor"] == {"type": "ai", "model_id": "model/x"}
    [found] = conversation["ranges"]
    assert (found["start_line"], found["end_line"]) == (3, 7)
    assert re.fullmatch(r"sha256:[0-9a-f]{16}", found["content_hash"])
    assert str(lab.root) not in json.dumps(record), "a record may be pushed: no path of this machine"


def test_linking_again_changes_nothing(lab: Any, done: str) -> None:
    link_commit(lab.root, done, lab.found())
    before = {path: path.read_bytes() for path in lab.home.iterdir()}
    note = lab.git("notes", "--ref=etude", "show", done)
    link_commit(lab.root, done, lab.found())
    assert {path: path.read_bytes() for path in lab.home.iterdir()} == before
    assert lab.git("notes", "--ref=etude", "show", done) == note


def test_several_sessions_share_a_commit(lab: Any) -> None:
    lab.session("a/1", ("one.py", "first_agent = 1\n"), began=1.0)
    lab.session("b", ("one.py", "first_agent = 1\nsecond_agent = 2\n"), ("sub/two.py", BODY), began=2.0)
    commit = lab.commit()
    assert link_commit(lab.root, commit, lab.found()).lines == {"a/1": 1, "b": 6}
    assert places(lab, commit) == [
        ("one.py", "a/1", 1, 1, "exact"),
        ("one.py", "b", 2, 2, "exact"),
        ("sub/two.py", "b", 1, 5, "exact"),
    ]


def test_a_commit_without_a_session_gets_no_note(lab: Any) -> None:
    lab.session("s-1", ("a.py", "agent_line = 1\n"))
    lab.write("a.py", "a person rewrote it\n")
    commit = lab.commit()
    assert link_commit(lab.root, commit, lab.found()).lines == {}
    assert read_note(lab.root, commit) == [] and places(lab, commit) == []
    assert read_session(lab.home / "s-1.jsonl").of("link") == []


def test_an_amend_takes_the_note_along_and_moved_lines_are_found(lab: Any, done: str) -> None:
    link_commit(lab.root, done, lab.found())
    text = (lab.root / "core.py").read_text()
    lab.write("core.py", f"# a new head\n# of two lines\n{text}")
    amended = lab.commit("again", "--amend")
    assert amended != done and places(lab, amended) == [("core.py", "s-1", 5, 9, "moved")]
    link_commit(lab.root, amended, lab.found())
    assert places(lab, amended) == [("core.py", "s-1", 5, 9, "exact")], "its own record comes first"


def test_lines_that_an_amend_changed_are_called_lost(lab: Any, done: str) -> None:
    link_commit(lab.root, done, lab.found())
    lab.write("core.py", "nothing of it\n")
    assert places(lab, lab.commit("again", "--amend")) == [("core.py", "s-1", 3, 7, "lost")]


def test_a_rebase_takes_notes_along_and_a_squash_joins_them(lab: Any) -> None:
    lab.write("other.py", "x\n")
    start = lab.commit("start")
    lab.session("a", ("a.py", "agent_a = 'one'\n"), began=1.0)
    link_commit(lab.root, lab.commit("one"), lab.found())
    lab.session("b", ("b.py", "agent_b = 'two'\n"), began=2.0)
    link_commit(lab.root, lab.commit("two"), lab.found())
    lab.git("checkout", "-q", "-b", "side", start)
    lab.write("other.py", "y\n")
    lab.commit("aside")
    lab.git("rebase", "-q", "side", "main")
    assert places(lab, "HEAD") == [("b.py", "b", 1, 1, "exact")]
    assert places(lab, "HEAD~1") == [("a.py", "a", 1, 1, "exact")]
    squash = ["-c", "sequence.editor=sed -i '2s/pick/squash/'", "-c", "core.editor=true", "rebase", "-q", "-i", "side"]
    lab.git(*squash)
    assert places(lab, "HEAD") == [("a.py", "a", 1, 1, "exact"), ("b.py", "b", 1, 1, "exact")]


def test_a_session_that_is_still_going_on_is_tied_by_the_note(lab: Any) -> None:
    writer = lab.session("live", ("a.py", "agent_line = 1\n"), ended=False)
    commit = lab.commit()
    assert link_commit(lab.root, commit, lab.found()).busy == ("live",)
    assert places(lab, commit) == [("a.py", "live", 1, 1, "exact")]
    lab.end(writer)
    assert link_commit(lab.root, commit, lab.found()).busy == ()
    assert len(read_session(writer.path).of("link")) == 1


def test_a_session_in_a_folder_below_the_root_is_tied_by_paths_from_the_root(lab: Any) -> None:
    (lab.root / "packages" / "one").mkdir(parents=True)
    lab.root = lab.root / "packages" / "one"
    lab.session("s", ("a.py", "agent_line = 1\n"))
    lab.root = lab.root.parents[1]
    commit = lab.commit()
    link_commit(lab.root, commit, lab.found())
    assert places(lab, commit) == [("packages/one/a.py", "s", 1, 1, "exact")]


def test_binary_files_odd_names_merges_and_root_commits_are_taken_as_they_are(lab: Any) -> None:
    name = 'sp ace\tand "quote" é.py'
    lab.session("s", (name, "agent_line = 1\n"))
    (lab.root / "picture.bin").write_bytes(b"\x00\xff" * 100)
    (lab.root / "latin.txt").write_bytes(b"caf\xe9\n")
    root = lab.commit()
    link_commit(lab.root, root, lab.found())
    assert places(lab, root) == [(name, "s", 1, 1, "exact")]
    lab.git("checkout", "-q", "-b", "side")
    lab.write("b.py", "x\n")
    lab.commit()
    lab.git("checkout", "-q", "main")
    lab.git("merge", "-q", "--no-ff", "--no-edit", "side")
    assert link_commit(lab.root, lab.git("rev-parse", "HEAD"), lab.found()).added == 0


def test_what_is_no_repository_or_no_commit_is_named(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    with pytest.raises(GitError, match="is in no git repository"):
        repository(tmp_path / "bare")
    lab.write("a", "x")
    commit = lab.commit()
    assert commit_id(lab.root, "HEAD") == commit
    for name in ("nothing", "--help", commit[:-1] + "x"):
        with pytest.raises(GitError, match="is no commit of"):
            commit_id(lab.root, name)
    lab.git("notes", "--ref=etude", "add", "-m", "by hand", "HEAD")
    with pytest.raises(GitError, match="no Agent Trace record"):
        link_lines(lab.root, commit)


def test_the_hook_links_each_commit_and_leaves_a_persons_hook_alone(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "etude"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from etude.cli.main import main; main()" "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("ETUDE_SESSIONS", str(lab.home))
    monkeypatch.setenv("PYTHONPATH", str(Path(etude.__file__).parents[1]))
    hook = install_hook(lab.root)
    assert install_hook(lab.root) == hook, "ours is renewed"
    lab.session("s", ("a.py", "agent_line = 1\n"))
    commit = lab.commit()
    assert sessions_in(read_note(lab.root, commit)[0]) == {"s": 1}
    hook.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(GitError, match="not ours; add this line"):
        install_hook(lab.root)
    assert subprocess.run([hook], check=True).returncode == 0
