"""Weights on their way while the trainer trains on: what was copied arrives; what a trainer that came back can't publish is passed over."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_in_threads import a_run

from etude.learn.weights.errors import Unreachable
from etude.learn.weights.folder import FolderBucket
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore
from etude.rl.learner import Learner
from etude.rl.services import Services


@pytest.fixture
def learner(checkpoint: Path, tmp_path: Path) -> Learner:
    run = a_run(checkpoint, tmp_path)
    return Learner(run.checkpoint, run.folder, run.settings, 1)


def test_what_was_copied_arrives_though_the_model_moved_on(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, put = threading.Event(), FolderBucket.put

    def late(self: FolderBucket, key: str, data: bytes) -> None:
        assert "index" in key or gate.wait(20)
        put(self, key, data)

    monkeypatch.setattr(FolderBucket, "put", late)
    before = state_digest(learner.trainer.model.state_dict())
    assert learner.publish(0)
    for tensor in learner.trainer.model.state_dict().values():  # as the next step does
        tensor.add_(1)
    gate.set()
    found = learner.publication_cost(0)
    assert found is not None and found["digest"] == before
    assert state_digest(Receiver(WeightStore(learner.folder / "weights")).catch_up().state) == before
    assert learner.publish(0)  # asked again it is the same publication
    learner.trainer.steps = 1
    assert not learner.publish(0) and learner.publish(1) and learner.publication_cost(1) is not None


def test_one_thread_alone_is_at_the_model_whoever_asks(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread keeps what its steps free: a trainer whose steps ran on six of them held 12 GB instead of 3."""
    by: list[int] = []
    for method in ("_train", "_restore", "_save", "_publish"):
        monkeypatch.setattr(learner, method, lambda *asked: by.append(threading.get_ident()))
    asks = [(learner.train, [0]), (learner.restore, 0), (learner.save, 1), (learner.publish, 1)] * 3
    callers = [threading.Thread(target=ask, args=(what,)) for ask, what in asks]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(by) == len(asks) and len(set(by)) == 1


def test_a_new_life_knows_of_no_publication_and_mends_what_is_there(checkpoint: Path, learner: Learner) -> None:
    assert learner.publish(0) and learner.publication_cost(0)
    again = Learner(checkpoint, learner.folder, learner.settings, 1)
    assert again.publication_cost(0) is None
    (shard,) = (learner.folder / "weights" / "anchor-0").glob("shard-*")
    whole = shard.read_bytes()
    shard.write_bytes(b"rot")
    again.mend(0)
    assert shard.read_bytes() == whole
    with pytest.raises(Unreachable, match="version 7 is not in"):
        again.mend(7)


class LaterTrainer:
    """Came back at step 2, and is asked for version 1."""

    async def publish(self, version: int) -> bool:
        return version >= 2

    async def publication_cost(self, version: int) -> dict[str, Any] | None:
        return None


async def test_a_version_that_no_one_can_publish_any_more_is_passed_over(checkpoint: Path, tmp_path: Path) -> None:
    run = a_run(checkpoint, tmp_path)
    places: Any = SimpleNamespace(
        start_trainer=LaterTrainer, start_engine=lambda region="": None, remember=lambda: None
    )
    services = Services(places, run.settings, run.observer)
    await services.trainer.start()
    assert await services.sync(1) == {}
    assert services.admits == -1 and "version 1 is passed over" in (tmp_path / "events.jsonl").read_text()
