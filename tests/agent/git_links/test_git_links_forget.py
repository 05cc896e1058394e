"""Forgetting: nothing of a session is left in files, signals, notes or the notes' history, and what stays is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from etude.agent.git_links.forget import forget
from etude.agent.git_links.links import link_commit, link_lines
from etude.agent.git_links.notes import blobs_naming, read_note
from etude.agent.git_links.signals import SignalStore


@pytest.fixture
def commit(lab: Any) -> str:
    """Two sessions whose names begin alike, linked to one commit, with signals."""
    SignalStore(lab.home).turn(True)
    lab.session("s-1", ("a.py", "agent_one = 1\n"), began=1.0)
    lab.session("s-10", ("b.py", "agent_ten = 10\n"), began=2.0)
    made = lab.commit()
    link_commit(lab.root, made, lab.found())
    SignalStore(lab.home).collect(1e9)
    return made


def everything(lab: Any) -> bytes:
    """All bytes of the home, and of every object that the notes' history ever held."""
    files = b"".join(path.read_bytes() for path in lab.home.rglob("*") if path.is_file())
    objects = lab.git("cat-file", "--batch-all-objects", "--batch-check", "--unordered").splitlines()
    blobs = [line.split()[0] for line in objects if line.split()[1] == "blob"]
    return files + "".join(lab.git("cat-file", "blob", blob) for blob in blobs).encode()


def test_nothing_of_a_forgotten_session_is_left_and_the_others_stay_whole(lab: Any, commit: str) -> None:
    assert b's-1"' in everything(lab)
    others = {p: p.read_bytes() for p in lab.home.iterdir() if p.name.startswith("s-10.")}
    found = forget(lab.home / "s-1.jsonl", lab.home)
    assert found.left == [] and found.notes == 1 and found.signals >= 3 and found.looked_at_objects >= 1
    assert [Path(file).name for file in found.files] == ["s-1.agent-trace.jsonl", "s-1.jsonl"]
    assert b's-1"' not in everything(lab) and b"agent_one" not in (lab.home / "s-10.jsonl").read_bytes()
    assert {p: p.read_bytes() for p in lab.home.iterdir() if p.name.startswith("s-10.")} == others
    assert [place.session_id for place in link_lines(lab.root, commit)] == ["s-10"]
    assert {row["session_id"] for row in SignalStore(lab.home).rows()} == {"s-10"}
    assert lab.git("rev-list", "--count", "refs/notes/etude") == "1", "the notes' history starts again"


def test_whatever_lies_beside_under_its_name_goes_and_what_is_anothers_stays(lab: Any) -> None:
    lab.session("s", ("a.py", "agent_one = 1\n"))
    lab.session("s.b", ("b.py", "agent_two = 2\n"))
    for name in ("s.tokens", "s.undo", "s.b.tokens", "shop.txt"):
        (lab.home / name).write_text("x")
    (lab.home / "s").mkdir()
    (lab.home / "s" / "1.txt").write_text("a command's whole output")
    found = forget(lab.home / "s.jsonl", lab.home)
    assert [Path(file).name for file in found.files] == ["s", "s.tokens", "s.undo", "s.jsonl"]
    assert sorted(path.name for path in lab.home.iterdir()) == ["s.b.jsonl", "s.b.tokens", "shop.txt"]


def test_the_last_session_takes_the_ref_with_it(lab: Any, commit: str) -> None:
    for name in ("s-1", "s-10"):
        assert forget(lab.home / f"{name}.jsonl", lab.home).left == []
    assert read_note(lab.root, commit) == []
    assert lab.git("for-each-ref", "refs/notes") == ""


def test_a_note_inside_a_pack_is_named_and_gone_after_the_remedy(lab: Any, commit: str) -> None:
    lab.git("gc", "-q")
    found = forget(lab.home / "s-1.jsonl", lab.home)
    assert len(found.left) == 1 and "git gc --prune=now" in found.left[0]
    lab.git("gc", "-q", "--prune=now")
    assert blobs_naming(lab.root, "s-1") == [] and b's-1"' not in everything(lab)


def test_a_repository_that_is_gone_is_named(lab: Any, commit: str) -> None:
    shutil.rmtree(lab.root)
    found = forget(lab.home / "s-1.jsonl", lab.home)
    assert [line for line in found.left if "the repository is gone" in line] and not (lab.home / "s-1.jsonl").exists()


def test_a_copy_that_was_left_in_the_home_is_named(lab: Any, commit: str) -> None:
    shutil.copy(lab.home / "s-1.jsonl", lab.home / "copy.jsonl")
    assert forget(lab.home / "s-1.jsonl", lab.home).left == [f"{lab.home / 'copy.jsonl'} names the session"]


def test_forgetting_broken_off_by_a_kill_is_done_again(lab: Any, commit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SignalStore.forget

    def killed(store: SignalStore, session_id: str) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(SignalStore, "forget", killed)
    with pytest.raises(KeyboardInterrupt):
        forget(lab.home / "s-1.jsonl", lab.home)
    monkeypatch.setattr(SignalStore, "forget", real)
    assert forget(lab.home / "s-1.jsonl", lab.home).left == []
    assert b's-1"' not in everything(lab)
