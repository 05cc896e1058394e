"""Events: whole lines from many processes, torn lines skipped, figures that read back."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.core.events.read import Tail, read_events


def test_events_read_back_in_order(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "deep" / "events.jsonl")
    log.note("base", "line one\nline two")
    log.progress("base", 1, 2, loss=1.5, file="a.py")
    log.metric("base", 1, loss=2)
    events = list(read_events(tmp_path / "deep" / "events.jsonl"))
    assert [e["kind"] for e in events] == ["note", "progress", "metric"]
    assert events[0]["text"] == "line one\nline two"
    assert events[1]["info"] == {"loss": 1.5, "file": "a.py"}
    assert events[2]["values"] == {"loss": 2.0} and events[2]["step"] == 1


def test_a_null_log_keeps_nothing_and_never_opens_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EventLog.null().note("rl", "x")
    assert list(tmp_path.iterdir()) == []


@given(kept=st.lists(st.text(), min_size=1, max_size=4), torn_at=st.integers(min_value=0))
def test_a_torn_last_line_loses_only_itself(
    tmp_path_factory: pytest.TempPathFactory, kept: list[str], torn_at: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    first = EventLog(path, clock=lambda: 1.0)
    for text in kept:
        first.note("rl", text)
    whole = path.read_bytes()
    first.note("rl", "killed while writing this")
    torn = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + torn[: torn_at % (len(torn) - 1)])

    again = EventLog(path)
    again.note("rl", "after")
    assert [e["text"] for e in read_events(path)] == [*kept, "after"]


def _write_many(path: Path, writer: int) -> None:
    log = EventLog(path)
    for step in range(200):
        log.metric("rl", step, writer=writer, filler=1 / 3)


def test_several_processes_append_without_mixing_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writers = [multiprocessing.get_context("spawn").Process(target=_write_many, args=(path, w)) for w in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = [line for line in path.read_text().splitlines() if line]  # one that opened mid-write may end a line twice
    assert len(lines) == 600 and all(json.loads(line)["kind"] == "metric" for line in lines)
    for w in range(3):
        steps = [e["step"] for e in read_events(path) if e["values"]["writer"] == w]
        assert steps == list(range(200))


def test_a_log_travels_by_pickle(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.note("rl", "here")
    pickle.loads(pickle.dumps(log)).note("rl", "there")
    assert [e["text"] for e in read_events(tmp_path / "events.jsonl")] == ["here", "there"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_json_lacks_stays_readable(tmp_path: Path, value: float) -> None:
    EventLog(tmp_path / "e").metric("rl", 0, loss=value)
    line = (tmp_path / "e").read_text()
    read_back = float(json.loads(line, parse_constant=lambda name: pytest.fail(name))["values"]["loss"])
    assert str(read_back) == str(value)


def test_progress_is_thinned_but_its_end_is_kept(tmp_path: Path) -> None:
    now = [0.0]
    log = EventLog(tmp_path / "e", clock=lambda: now[0])
    for done in range(1, 101):
        now[0] += 0.01
        log.progress("sft", done, 100)
    seen = [e["done"] for e in read_events(tmp_path / "e")]
    assert seen[-1] == 100 and len(seen) <= 6


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """A file size limit replaces a full disk: the kernel refuses the write in the same way."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        log = EventLog(tmp_path / "e")
        try:
            for _ in range(10):
                log.note("rl", "x" * 40)
        except OSError as error:
            os._exit(0 if "disk" in str(error) or error.errno else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_tail_waits_for_the_second_half_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "e"
    tail = Tail(path)
    assert tail.poll() == []
    EventLog(path).note("rl", "whole")
    line = path.read_bytes()
    with path.open("ab") as file:
        file.write(line[:10])
        file.flush()
        assert [e["text"] for e in tail.poll()] == ["whole"]
        file.write(line[10:])
    assert [e["text"] for e in tail.poll()] == ["whole"]
