"""A session that was killed: at most the line being written is lost, it is readable meanwhile, and it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_rows, read_session
from etude.core.trace.session import Recorder, Session
from etude.core.trace.tail import SessionTail
from etude.core.trace.writer import SessionBusy, SessionWriter, add_entry

Fill = Callable[[Recorder], Recorder]
SUFFIXES = (".jsonl", ".tokens", ".routes")
V1 = Path(__file__).parent / "data" / "v1.jsonl"

# Writes entries for ever, telling after each that it is recorded.
WRITER = """
import sys
from pathlib import Path
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.writer import SessionWriter
writer = SessionWriter(Path(sys.argv[1]), SessionHeader("s"), every="line")
parent = None
for number in range(10**9):
    tokens = EntryTokens([number, 1], 1, [-0.5], [0])
    parent = writer.append("tool_result", {"text": "x" * 500, "failed": False}, parent=parent, tokens=tokens)
    print(number, flush=True)
"""


def rows(session: Session) -> list[tuple]:
    return [(e.id, e.parent, e.type, e.data, e.tokens and (e.tokens.ids, e.tokens.versions)) for e in session.entries]


@pytest.mark.parametrize("after", [1, 40, 400])
def test_kill_9_costs_at_most_the_line_being_written(tmp_path: Path, after: int) -> None:
    path = tmp_path / "s.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reported = -1
        for line in process.stdout:
            reported = int(line)
            if reported >= after:
                break
        assert len(read_session(path).entries) > reported, "readable while it is written, with all that was reported"
        process.send_signal(signal.SIGKILL)
        reported = max([reported, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
    session = read_session(path)
    assert len(session.entries) in (reported + 1, reported + 2), "what was reported is there; one more may be"
    assert session.segments()[0].ids.tolist()[::2] == list(range(len(session.entries)))
    writer = SessionWriter.resume(path)
    assert writer.append("end", {"reason": "stopped"}) == len(session.entries)
    writer.close()
    assert rows(read_session(path)) == rows(writer.session)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_session_torn_at_any_byte_goes_on_as_if_it_had_ended_there(
    fill: Fill, header: SessionHeader, tmp_path: Path, suffix: str
) -> None:
    fill(SessionWriter(tmp_path / "whole.jsonl", header))
    whole = {s: (tmp_path / "whole").with_suffix(s).read_bytes() for s in SUFFIXES}
    path = tmp_path / "s.jsonl"
    first = whole[".jsonl"].index(b"\n") + 1 if suffix == ".jsonl" else 0
    for cut in range(first, len(whole[suffix]), 7):
        for s in SUFFIXES:
            path.with_suffix(s).write_bytes(whole[s][:cut] if s == suffix else whole[s])
        before = read_session(path)
        writer = SessionWriter.resume(path)
        number = writer.append("tool_result", {"text": "on", "failed": False}, tokens=EntryTokens([9, 9], 2))
        writer.close()
        after = read_session(path)
        assert number == len(before.entries) and rows(after)[:-1] == rows(before)
        assert after.entries[-1].tokens is not None and after.entries[-1].tokens.ids == [9, 9]
        for one, other in zip(before.segments(), after.segments(), strict=False):
            assert np.array_equal(one.ids, other.ids) and (one.routes is None) == (other.routes is None)


def test_time_goes_on_where_the_session_ended(
    header: SessionHeader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    writer = SessionWriter(path, header)
    clock[0] += 5.0
    writer.append("end", {"reason": "stopped"})
    writer.close()
    clock[0] = 7.0  # another process, another clock
    again = SessionWriter.resume(path)
    clock[0] += 2.0
    again.append("message", {"role": "user", "text": "go on"})
    assert [entry.at_s for entry in again.session.entries] == [5.0, 7.0]


def test_an_older_session_goes_on_in_the_present_format(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        shutil.copy(V1.with_suffix(suffix), tmp_path / f"old{suffix}")
    before = read_session(V1)
    writer = SessionWriter.resume(tmp_path / "old.jsonl", every="line")
    writer.append("effort", {"effort": "high"})
    writer.close()
    assert read_rows(tmp_path / "old.jsonl")[0]["version"] == 2
    after = read_session(tmp_path / "old.jsonl")
    assert rows(after)[:-1] == rows(before)
    assert [s.ids.tolist() for s in after.segments()] == [s.ids.tolist() for s in before.segments()]


def test_only_one_process_writes_a_session_at_a_time(header: SessionHeader, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    writer = SessionWriter(path, header, every="line")
    writer.append("effort", {"effort": "low"})
    for attempt in (lambda: SessionWriter.resume(path), lambda: add_entry(path, "verdict", {"score": 1.0})):
        with pytest.raises(SessionBusy, match="being written by another process"):
            attempt()
    writer.close()
    add_entry(path, "verdict", {"score": 1.0})
    assert [entry.type for entry in read_session(path).entries] == ["effort", "verdict"]


def test_routes_may_be_gone_and_a_header_may_not(fill: Fill, header: SessionHeader, tmp_path: Path) -> None:
    fill(SessionWriter(tmp_path / "s.jsonl", header))
    (tmp_path / "s.routes").write_bytes(b"")  # gone after it was read: routes have their own retention
    SessionWriter.resume(tmp_path / "s.jsonl").close()
    assert len(read_session(tmp_path / "s.jsonl").segments()) == 3
    (tmp_path / "s.jsonl").write_bytes(b"{}\n")
    with pytest.raises(SessionError, match="no session header"):
        SessionWriter.resume(tmp_path / "s.jsonl")


@pytest.mark.parametrize("step", [1, 7, 64])
def test_a_follower_sees_every_entry_once_however_the_bytes_arrive(
    fill: Fill, header: SessionHeader, tmp_path: Path, step: int
) -> None:
    session = fill(SessionWriter(tmp_path / "whole.jsonl", header)).session
    data = (tmp_path / "whole.jsonl").read_bytes()
    tail, seen = SessionTail(tmp_path / "s.jsonl"), []
    assert tail.read() == [] and tail.header is None
    descriptor = os.open(tmp_path / "s.jsonl", os.O_CREAT | os.O_WRONLY)
    for at in range(0, len(data), step):
        os.write(descriptor, data[at : at + step])
        seen += tail.read()
    os.close(descriptor)
    assert tail.header == header
    assert [(e.id, e.type, e.data) for e in seen] == [(e.id, e.type, e.data) for e in session.entries]
