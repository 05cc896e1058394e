"""The live view equals the events."""

from __future__ import annotations

import contextlib
import io
import os
import pty
from pathlib import Path

from etude.core.events.live import LiveView
from etude.core.events.log import EventLog
from etude.core.events.picture import Picture, describe, duration


def _progress(time: float, done: int, total: int = 10) -> dict[str, object]:
    return {"time": time, "kind": "progress", "stage": "rl", "done": done, "total": total, "info": {}}


def test_time_left_comes_from_the_rate_since_the_first_progress() -> None:
    picture = Picture()
    for time, done in ((100.0, 4), (110.0, 6)):  # a resumed stage starts at 4: those 4 say nothing about the speed
        picture.add(_progress(time, done))
    assert picture.stages["rl"].seconds_left == 20.0
    assert describe(picture.stages["rl"]) == "rl 6/10, about 20 s left"


def test_a_new_bar_within_a_stage_starts_a_new_rate() -> None:
    picture = Picture()
    for event in (_progress(0, 0), _progress(100, 10), _progress(101, 0, 50), _progress(102, 10, 50)):
        picture.add(event)
    assert picture.stages["rl"].seconds_left == 4.0


def test_the_last_metrics_are_shown_and_a_new_stage_starts_clean() -> None:
    picture = Picture()
    picture.add({"time": 0, "kind": "metric", "stage": "sft", "step": 1, "values": {"loss": 2.0}})
    picture.add({"time": 1, "kind": "metric", "stage": "sft", "step": 2, "values": {"loss": 1.23456}})
    assert describe(picture.stages["sft"]) == "sft, loss 1.235"
    picture.add({"time": 2, "kind": "progress", "stage": "rl", "done": 0, "total": 3, "info": {}})
    assert describe(picture.stages["rl"]) == "rl 0/3"


def test_what_a_stage_shows_with_its_progress_comes_before_its_other_metrics() -> None:
    picture = Picture()
    many = {f"value_{n}": float(n) for n in range(9)} | {"pass_rate": 0.25}
    for step in (1, 2):
        picture.add({"time": step, "kind": "metric", "stage": "rl", "step": step, "values": many})
        picture.add(
            {"time": step, "kind": "progress", "stage": "rl", "done": step, "total": 2, "info": {"pass_rate": step / 2}}
        )
    assert (
        describe(picture.stages["rl"]) == "rl 2/2, pass_rate 1, value_0 0, value_1 1, value_2 2, value_3 3, value_4 4"
    )


def test_stages_at_work_are_shown_together_until_each_ends() -> None:
    picture = Picture()
    for stage in ("base", "sessions"):
        picture.add({"time": 0, "kind": "progress", "stage": stage, "done": 1, "total": 3, "info": {}})
    assert list(picture.stages) == ["base", "sessions"]
    picture.add({"time": 1, "kind": "note", "stage": "base", "text": "done in 1 s", "ends": True})
    assert list(picture.stages) == ["sessions"] and picture.take_notes() == [("base", "done in 1 s")]


def test_durations_read_like_a_person_says_them() -> None:
    assert [duration(s) for s in (0.2, 59.4, 61, 3599.4, 3725)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "59 min 59 s",
        "1 h 2 min",
    ]


def test_plain_lines_when_there_is_no_terminal(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "e")
    log.note("base", "from an earlier run")
    screen = io.StringIO()
    with LiveView(tmp_path / "e", screen):
        log.note("base", "hello")
        log.progress("base", 5, 5, loss=0.5)
    assert screen.getvalue() == "[base] hello\n[base] base 5/5, loss 0.5\n"


def drained(master: int) -> bytes:
    """All that a closed terminal was sent: it comes in pieces, and Linux ends it with EIO."""
    pieces = []
    with contextlib.suppress(OSError):
        while piece := os.read(master, 65536):
            pieces.append(piece)
    os.close(master)
    return b"".join(pieces)


def test_a_terminal_gets_a_bar_and_notes_are_not_read_as_markup(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    log = EventLog(tmp_path / "e")
    with os.fdopen(slave, "w") as terminal, LiveView(tmp_path / "e", terminal):
        log.note("rl", "list[int] stays")
        log.progress("rl", 3, 7, reward=0.25)
    shown = drained(master).decode()
    assert "list[int] stays" in shown and "3/7" in shown and "reward 0.25" in shown
