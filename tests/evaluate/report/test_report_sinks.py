"""A tracker gets every step of a run once and in order, through kills and outages, and its death stops nothing else."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.evaluate.report.sinks.follow import BATCH_LINES, RETRIES, MetricsFollower, finite, opening
from etude.evaluate.report.sinks.package import Opening, SinkError, open_sink
from etude.evaluate.report.working import at_work

OPENING = Opening("etude", "laptop", "laptop-1", {"rl.steps": 4})


class Recorder:
    """A sink that keeps what it receives; it refuses `down` times first."""

    def __init__(self, down: int = 0) -> None:
        self.rows: list[tuple[str, int, dict[str, float]]] = []
        self.down = down
        self.closed = 0

    def log(self, stage: str, step: int, values: Any) -> None:
        if self.down:
            self.down -= 1
            raise ConnectionError("no route")
        self.rows.append((stage, step, dict(values)))

    def close(self) -> None:
        self.closed += 1


class Package:
    """What trackio and wandb have in common, recorded as it is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **options: self.calls.append((name, words, options))


def log(run: Path, steps: range) -> None:
    events = EventLog(run / "events.jsonl", clock=lambda: 1.0)
    for step in steps:
        events.note("rl", "a word")
        events.metric("rl", step, reward=step / 2, drift=float("nan"))
    events.close()


def follower(run: Path, sink: Any, waits: list[float] | None = None) -> MetricsFollower:
    return MetricsFollower(run, "trackio", sink, wait=(waits if waits is not None else []).append)


def test_metrics_are_sent_as_they_come_and_nothing_else_is(tmp_path: Path) -> None:
    sink = Recorder()
    followed = follower(tmp_path, sink)
    assert followed.poll() == 0
    log(tmp_path, range(2))
    assert followed.poll() == 4 and followed.poll() == 0
    log(tmp_path, range(2, 3))
    followed.poll()
    assert sink.rows == [("rl", step, {"reward": step / 2}) for step in range(3)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 400), max_size=5))
def test_a_file_seen_at_any_byte_gives_every_step_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    run = tmp_path_factory.mktemp("run")
    log(run, range(4))
    whole = (run / "events.jsonl").read_bytes()
    rows: list[Any] = []
    for cut in [*sorted(cuts), len(whole)]:
        (run / "events.jsonl").write_bytes(whole[:cut])
        sink = Recorder()
        follower(run, sink).poll()  # a new process each time
        rows += sink.rows
    assert [step for _, step, _ in rows] == [0, 1, 2, 3]


def test_a_torn_line_is_passed_and_the_ones_behind_it_are_sent(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"kind": "metric", "stage": "rl", "st\n[1]\n')
    log(tmp_path, range(1))
    sink = Recorder()
    follower(tmp_path, sink).poll()
    assert len(sink.rows) == 1


def test_an_outage_is_waited_for_with_growing_waits(tmp_path: Path) -> None:
    log(tmp_path, range(2))
    sink, waits = Recorder(down=3), []
    follower(tmp_path, sink, waits).poll()
    assert waits == [1.0, 2.0, 4.0] and [row[1] for row in sink.rows] == [0, 1]


def test_a_tracker_that_stays_away_ends_the_follower_and_the_next_one_goes_on_there(tmp_path: Path) -> None:
    log(tmp_path, range(1))
    follower(tmp_path, Recorder()).poll()
    log(tmp_path, range(1, 3))
    before = (tmp_path / "events.jsonl").read_bytes()
    with pytest.raises(SinkError, match=r"took nothing in 7 tries \(ConnectionError: no route\); the run goes on"):
        follower(tmp_path, Recorder(down=RETRIES + 1)).poll()
    assert (tmp_path / "events.jsonl").read_bytes() == before
    sink = Recorder()
    follower(tmp_path, sink).poll()
    assert [row[1] for row in sink.rows] == [1, 2]


def test_a_kill_repeats_at_most_one_batch(tmp_path: Path) -> None:
    log(tmp_path, range(BATCH_LINES))  # two lines a step

    class Killed(Recorder):
        def log(self, stage: str, step: int, values: Any) -> None:
            if step == BATCH_LINES - 10:
                raise KeyboardInterrupt
            super().log(stage, step, values)

    first, second = Killed(), Recorder()
    with pytest.raises(KeyboardInterrupt):
        follower(tmp_path, first).poll()
    follower(tmp_path, second).poll()
    sent = [row[1] for row in first.rows + second.rows]
    assert set(sent) == set(range(BATCH_LINES)) and len(sent) - len(set(sent)) <= BATCH_LINES // 2


def test_another_run_in_the_folder_is_reported_and_not_mixed_in(tmp_path: Path) -> None:
    log(tmp_path, range(3))
    follower(tmp_path, Recorder()).poll()
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(SinkError, match="holds another run now; remove .*trackio.json"):
        follower(tmp_path, Recorder()).poll()


def test_trackers_get_finite_numbers_alone() -> None:
    assert finite({"a": 1, "b": "nan", "c": "inf", "d": {"e": 2.5}, "f": "word", "g": None}) == {"a": 1.0, "d.e": 2.5}


def test_trackio_is_called_with_stage_names_and_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package()
    monkeypatch.setitem(sys.modules, "trackio", package)
    sink = open_sink("trackio", OPENING)
    sink.log("rl", 3, {"reward": 0.5})
    sink.close()
    assert package.calls == [
        ("init", (), {"project": "etude", "name": "laptop", "config": {"rl.steps": 4}, "resume": "allow"}),
        ("log", ({"rl/reward": 0.5, "rl/step": 3},), {"step": 3}),
        ("finish", (), {}),
    ]


def test_wandb_draws_each_stage_over_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package()
    monkeypatch.setitem(sys.modules, "wandb", package)
    sink = open_sink("wandb", OPENING)
    sink.log("sft", 9, {"loss": 1.0})
    sink.log("rl", 0, {"reward": 0.5})
    sink.log("rl", 1, {"reward": 0.6})
    names = [name for name, *_ in package.calls]
    assert names == ["init", "define_metric", "define_metric", "log", "define_metric", "define_metric", "log", "log"]
    assert package.calls[0][2]["id"] == "laptop-1"
    assert all("step" not in options for name, _, options in package.calls if name == "log")


def test_a_package_that_is_not_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(SinkError, match="^trackio is not installed: pip install trackio"):
        open_sink("trackio", OPENING)
    with pytest.raises(SinkError, match="no sink 'mlflow'; there are trackio, wandb"):
        open_sink("mlflow", OPENING)


def test_a_package_that_refuses_is_reported_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError("no API key")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse))
    with pytest.raises(SinkError, match="wandb did not open a run: PermissionError: no API key"):
        open_sink("wandb", OPENING)


def test_the_recipe_is_the_trackers_configuration(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('[run]\nname = "laptop"\n[rl]\nsteps = 4\n')
    start = opening(tmp_path, "p", "")
    assert start.name.startswith("laptop-") and start.config["rl.steps"] == 4
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recipe.toml").write_text('[run]\nname = "laptop"\n')
    assert opening(tmp_path / "other", "p", "").name != start.name, "two runs of a recipe are two"
    assert opening(tmp_path, "p", "mine").name == "mine" and opening(tmp_path, "p", "").run_id == start.run_id


def test_a_run_is_at_work_while_the_process_in_its_lock_lives(tmp_path: Path) -> None:
    assert not at_work(tmp_path)
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    assert at_work(tmp_path)
    (tmp_path / "lock").write_text("")
    assert not at_work(tmp_path)


def test_the_place_is_a_file_that_a_person_can_read(tmp_path: Path) -> None:
    log(tmp_path, range(1))
    follower(tmp_path, Recorder()).poll()
    kept = json.loads((tmp_path / "sinks" / "trackio.json").read_text())
    assert kept == {"place": (tmp_path / "events.jsonl").stat().st_size}
