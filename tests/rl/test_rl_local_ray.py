"""Ray on this machine: a start that a busy machine was too slow for is tried again and leaves nothing behind; what its actors' threads do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.rl import local_ray
from etude.rl.local_ray import SHORT_SPIN, STARTS, LocalRay, SlowMachine

ray = pytest.importorskip("ray")
LATE = "The current node timed out during startup. This could happen because some of the raylet failed to startup."


class Slow:
    """`ray.init` that fails this many times; `temps` are the folders it was given."""

    def __init__(self, times: int, words: str = LATE) -> None:
        self.times, self.words = times, words
        self.temps: list[Path] = []

    def __call__(self, **options: Any) -> None:
        self.temps.append(Path(options["_temp_dir"]))
        if len(self.temps) <= self.times:
            raise Exception(self.words)  # as Ray does


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(local_ray.os, "environ", dict(local_ray.os.environ))


def test_a_start_that_was_too_slow_is_tried_again_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(STARTS - 1)
    monkeypatch.setattr(ray, "init", slow)
    record = tmp_path / "ray.json"
    with LocalRay(record):
        assert json.loads(record.read_text())["temp"] == str(slow.temps[-1])
        assert [temp.exists() for temp in slow.temps] == [False] * (STARTS - 1) + [True]
    assert not record.exists() and not slow.temps[-1].exists()


def test_a_machine_that_stays_too_slow_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(STARTS)
    monkeypatch.setattr(ray, "init", slow)
    with pytest.raises(SlowMachine, match="too busy now. Run again later"), LocalRay(tmp_path / "ray.json"):
        pytest.fail("it was not started")
    assert len(slow.temps) == STARTS and not any(temp.exists() for temp in slow.temps)


def test_any_other_failure_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(1, "no space left on device")
    monkeypatch.setattr(ray, "init", slow)
    with pytest.raises(Exception, match="no space left"), LocalRay(tmp_path / "ray.json"):
        pytest.fail("it was not started")
    assert len(slow.temps) == 1 and not slow.temps[0].exists()


@pytest.mark.parametrize(
    ("given", "spins"), [({}, SHORT_SPIN), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "")]
)
def test_threads_of_actors_that_wait_sleep_soon_unless_a_person_says_otherwise(
    given: dict[str, str], spins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = local_ray.os.environ
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        variables.pop(name, None)
    variables |= given
    seen: list[str] = []
    monkeypatch.setattr(ray, "init", lambda **_: seen.append(variables.get("GOMP_SPINCOUNT", "")))
    with LocalRay(tmp_path / "ray.json"):
        assert seen == [spins]
