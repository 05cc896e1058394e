"""Sessions written after the fact: whole or not at all, in place of an earlier one, and a verdict is added once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.core.trace.entry import SessionHeader
from etude.core.trace.reader import read_session
from etude.core.trace.session import Recorder, Session
from etude.core.trace.writer import SessionWriter, add_verdict, write_session

Fill = Callable[[Recorder], Recorder]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_session_written_at_once_reads_back_as_recorded(fill: Fill, header: SessionHeader, tmp_path: Path) -> None:
    recorded = fill(SessionWriter(tmp_path / "a.jsonl", header)).session
    write_session(tmp_path / "b.jsonl", recorded)
    turns, once = (read_session(tmp_path / name) for name in ("a.jsonl", "b.jsonl"))
    assert [(e.id, e.parent, e.type, e.at_s, e.data, e.tokens) for e in once.entries] == [
        (e.id, e.parent, e.type, e.at_s, e.data, e.tokens) for e in turns.entries
    ]
    for one, other in zip(once.segments(), recorded.segments(), strict=True):
        assert np.array_equal(one.ids, other.ids) and np.array_equal(one.versions, other.versions)
        assert (one.routes is None) == (other.routes is None)
    assert {p.suffix for p in tmp_path.glob("b.*")} == {".jsonl", ".tokens", ".routes"}


def test_another_session_at_the_same_place_leaves_nothing_of_the_first(
    fill: Fill, header: SessionHeader, tmp_path: Path
) -> None:
    write_session(tmp_path / "s.jsonl", fill(Recorder(header)).session)
    bare = Recorder(replace(header, session_id="s-2"))
    bare.append("end", {"reason": "done"})
    write_session(tmp_path / "s.jsonl", bare.session)
    assert list(files(tmp_path)) == ["s.jsonl"]
    assert read_session(tmp_path / "s.jsonl").header.session_id == "s-2"


@pytest.mark.parametrize("suffix", [".tokens", ".routes", ".jsonl"])
def test_a_full_disk_leaves_no_session_rather_than_half_of_one(
    fill: Fill,
    header: SessionHeader,
    tmp_path: Path,
    full_disk: Callable[[int], AbstractContextManager[None]],
    suffix: str,
) -> None:
    session = fill(Recorder(header)).session
    write_session(tmp_path / "s.jsonl", session)
    sizes = {end: (tmp_path / f"s{end}").stat().st_size for end in (".tokens", ".routes", ".jsonl")}
    room = sizes[suffix] - 1  # files are written in this order, so the first that is larger fails
    with full_disk(room), pytest.raises(OSError):
        write_session(tmp_path / "s.jsonl", session)
    assert not (tmp_path / "s.jsonl").exists(), "the old one is gone with its tokens, the new one is not there"
    write_session(tmp_path / "s.jsonl", session)
    assert len(read_session(tmp_path / "s.jsonl").segments()) == 3


def test_a_verdict_is_added_once_however_often_the_work_is_repeated(
    fill: Fill, header: SessionHeader, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    write_session(path, fill(Recorder(header)).session)
    before = read_session(path)
    verdict: dict[str, Any] = {"step": 3, "reward": 0.5, "components": {"outcome": 1.0, "kl": -0.5}}
    for _ in range(3):
        add_verdict(path, verdict)
    entry = read_session(path).of("verdict")
    assert [(e.id, e.data) for e in entry] == [(len(before.entries), verdict)]
    add_verdict(path, {**verdict, "step": 4})
    assert [e.data["step"] for e in read_session(path).of("verdict")] == [3, 4]


def test_a_verdict_torn_by_a_kill_is_written_again(fill: Fill, header: SessionHeader, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write_session(path, fill(Recorder(header)).session)
    whole = path.read_bytes()
    add_verdict(path, {"step": 3})
    line = path.read_bytes()[len(whole) :]
    for kept in range(len(line)):
        path.write_bytes(whole + line[:kept])
        add_verdict(path, {"step": 3})
        assert path.read_bytes() == whole + line


def test_a_session_without_entries_takes_a_verdict(header: SessionHeader, tmp_path: Path) -> None:
    write_session(tmp_path / "s.jsonl", Session(header))
    add_verdict(tmp_path / "s.jsonl", {"score": 0.0})
    assert read_session(tmp_path / "s.jsonl").entries[0].data == {"score": 0.0}
