"""Engines and trainer replaced in the middle of a run (`etude reload`): the run is whole, and what changed holds for its next start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_world import World
from pydantic import ValidationError
from recording import RecordingObserver
from run_in_threads import a_run, check_whole, live

from etude.learn.engine.settings import EngineSettings
from etude.rl.ledger import RlLedger
from etude.rl.reload import ANSWERS, REQUEST, Reload, ReloadRefused, answers, ask, changed_settings, fitted_to, in_force
from etude.rl.reloader import Reloader
from etude.rl.settings import RlSettings


def test_the_engine_has_as_many_threads_as_the_trainer_unless_it_has_a_number_of_its_own() -> None:
    engine = EngineSettings(threads=3)
    found = [
        fitted_to(RlSettings.model_validate({"threads": 2} | own), engine).threads
        for own in ({}, {"engine_threads": 1}, {"engine_threads": 4})
    ]
    assert found == [2, 1, 4]


@pytest.mark.nightly
def test_a_run_whose_engine_and_trainer_are_replaced_is_whole_and_counts_no_death(checkpoint: Path, tmp_path: Path):
    run = a_run(checkpoint, tmp_path, save_every=100)
    ask(tmp_path, Reload(id="one", settings={"max_batch": 3}))
    summary, places = live(run)
    check_whole(run)
    (answer,) = answers(tmp_path)
    assert (answer.id, answer.error, answer.settings) == ("one", "", {"max_batch": 3})
    assert not (tmp_path / REQUEST).exists()
    assert [engine.settings.max_batch for engine in places.engines] == [64, 3]
    assert summary["times"]["restarts"] == 0
    saved = [entry["step"] for entry in RlLedger(tmp_path / "ledger.jsonl").entries if entry["kind"] == "saved"]
    assert len(saved) == 2 and saved[0] < saved[1] == 3  # where the trainer was replaced, and at the end


@pytest.fixture
def reloads(tmp_path: Path) -> Any:
    """`SimulatedCluster` with a reloader over it; what it starts is broken where its engines would take one turn at once."""
    world = World(count=2)
    observer = RecordingObserver()
    notes = observer.notes
    places: Any = SimpleNamespace(engine=EngineSettings())
    start = world.start_engine

    def start_engine(region: str) -> Any:
        world.broken = places.engine.max_batch == 1
        return start(region)

    world.start_engine = start_engine  # type: ignore[method-assign]
    services: Any = SimpleNamespace(engines=world.engines, renew_trainer=lambda: pytest.fail("that was not asked for"))
    reloader = Reloader(tmp_path, tmp_path, places, services, RlSettings(), observer)

    async def answered() -> None:
        await world.engines.serve(0)
        reloader.start()
        while (tmp_path / REQUEST).exists():
            await asyncio.sleep(0.01)
        await reloader.close()
        await world.engines.close()

    return SimpleNamespace(world=world, notes=notes, places=places, answered=answered)


async def test_settings_with_which_no_engine_comes_up_are_taken_back_and_the_rest_stay(reloads: Any, tmp_path: Path):
    ask(tmp_path, Reload(id="bad", trainer=False, settings={"max_batch": 1}))
    await reloads.answered()
    (answer,) = answers(tmp_path)
    assert answer.error == "the engine 0 did not come up: killed"
    assert reloads.places.engine.max_batch == 64
    assert [one.lifeline.generation for one in reloads.world.engines.replicas] == [1, 0]
    assert in_force(tmp_path, EngineSettings()) == EngineSettings()


async def test_engines_are_replaced_one_after_the_other_and_later_starts_have_what_changed(
    reloads: Any, tmp_path: Path
):
    ask(tmp_path, Reload(id="good", trainer=False, settings={"max_batch": 8}))
    await reloads.answered()
    assert [one.lifeline.generation for one in reloads.world.engines.replicas] == [1, 1]
    assert in_force(tmp_path, EngineSettings(max_len=99)) == EngineSettings(max_len=99, max_batch=8)


async def test_what_was_answered_before_a_kill_is_not_done_again(reloads: Any, tmp_path: Path):
    ask(tmp_path, Reload(id="same", trainer=False))
    answer = Reload(id="same", trainer=False).model_dump() | {"seconds": 1.0}
    (tmp_path / ANSWERS).write_text(json.dumps(answer) + '\n{"id": "torn')
    await reloads.answered()
    assert [one.lifeline.generation for one in reloads.world.engines.replicas] == [0, 0]
    assert len(answers(tmp_path)) == 1


async def test_a_request_that_is_none_is_set_aside(reloads: Any, tmp_path: Path):
    (tmp_path / REQUEST).write_text("{}")
    await reloads.answered()
    assert reloads.notes and not answers(tmp_path) and (tmp_path / "reload.bad").exists()


def test_one_request_at_a_time(tmp_path: Path):
    ask(tmp_path, Reload(id="a"))
    with pytest.raises(ReloadRefused, match="waits for its answer"):
        ask(tmp_path, Reload(id="b"))
    assert Reload.model_validate_json((tmp_path / REQUEST).read_text()).id == "a"
    assert [path.name for path in tmp_path.iterdir()] == [REQUEST]


def test_settings_are_checked_as_in_a_recipe():
    with pytest.raises(ValidationError):
        changed_settings(EngineSettings(), {"max_batch": 0})
    with pytest.raises(ValidationError):
        changed_settings(EngineSettings(), {"absent": 1})
