"""The first minute of a stage says what it does, before any bar moves."""

from __future__ import annotations

import io
from pathlib import Path

from etude.core.events.live import Bars, PlainProgress
from etude.core.events.log import EventLog
from etude.core.events.picture import Picture, describe
from etude.core.events.read import Tail


def _picture(path: Path) -> Picture:
    picture = Picture()
    for event in Tail(path).poll():
        picture.add(event)
    return picture


def test_a_phase_is_shown_until_progress_comes(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    times = iter(range(100))
    log = EventLog(path, clock=lambda: float(next(times)))
    log.phase("rl", "starting Ray")
    assert describe(_picture(path).stages["rl"]) == "rl: starting Ray"
    log.phase("rl", "checking 8 tasks, 0 of 64 attempts")
    log.phase("rl", "checking 8 tasks, 31 of 64 attempts")
    stage = _picture(path).stages["rl"]
    assert describe(stage) == "rl: checking 8 tasks, 31 of 64 attempts" and stage.since == 1.0
    log.progress("rl", 1, 3)
    assert describe(_picture(path).stages["rl"]).startswith("rl 1/3")


def test_each_phase_is_printed_at_once_where_there_is_no_terminal(tmp_path: Path) -> None:
    path, out = tmp_path / "events.jsonl", io.StringIO()
    log, lines = EventLog(path), PlainProgress(out)
    for text in ("starting Ray", "checking 8 tasks, 0 of 64 attempts", "checking 8 tasks, 1 of 64 attempts"):
        log.phase("rl", text)
        lines.show(list(_picture(path).stages.values()))
    assert out.getvalue().splitlines() == ["[rl] starting Ray", "[rl] checking 8 tasks, 0 of 64 attempts"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_phase_with_the_time_it_takes(tmp_path: Path) -> None:
    path, out = tmp_path / "events.jsonl", Terminal()
    EventLog(path).phase("rl", "loading the trainer and 1 engine")
    bars = Bars(out)
    bars.show(list(_picture(path).stages.values()))
    bars.close()
    assert "loading the trainer and 1 engine …" in out.getvalue() and "0 s" in out.getvalue()
