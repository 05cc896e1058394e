"""Trainer ranks in rl, as threads: they reach the same result as one, die together, and are brought back to the same bits (promise 6)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_in_threads import a_run

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.core.events.log import EventLog
from etude.core.trace.segment import NO_ROUTE, Rollout, Segment
from etude.learn.engine.swap import load_checked
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model, with_drafts
from etude.learn.model.settings import ModelSettings
from etude.learn.train.checkpoint import TrainingStateError
from etude.learn.train.gloo_ranks import GlooRanks
from etude.learn.train.ranks import ALONE, RanksDiverged
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore
from etude.rl.learner import Learner
from etude.rl.observer import EventLogObserver
from etude.rl.placement import RankGroup
from etude.rl.restarts import ProcessDied, ProcessLost
from etude.rl.rewards.library import COMPONENTS
from etude.rl.run import run_rl
from etude.rl.services import Services
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore

STEPS, PER_STEP, SIZE = 4, 2, 3
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = new_model(ModelSettings(hidden_size=32, layers=2, heads=2, experts=4), tokenizer.get_vocab_size())
    model = with_drafts(model, 1, seed=0)  # left aside but where `rl.drafts` asks for them
    save_checkpoint(model, folder / "model", folder)
    return folder / "model"


@torch.inference_mode()
def a_rollout(model: Any, rng: np.random.Generator, group: int, member: int, prompt: np.ndarray) -> Rollout:
    ids = np.concatenate((prompt, rng.integers(0, 200, int(rng.integers(5, 60)))))
    out = model(torch.from_numpy(ids)[None], return_routes=True)
    logprobs = out.logits[0, :-1].log_softmax(-1).gather(-1, torch.from_numpy(ids[1:, None]))[:, 0].numpy()
    sampled = np.arange(len(ids)) >= len(prompt)
    routes = out.routes[0].numpy().copy()
    routes[-1] = NO_ROUTE
    kept = np.where(sampled, np.concatenate(([0.0], logprobs)), 0.0).astype(np.float32)
    segment = Segment(ids.astype(np.int32), sampled, kept, np.where(sampled, 0, -1).astype(np.int32), routes)
    counters = {name: float(rng.integers(9)) for one in COMPONENTS for name in one.needs}
    return Rollout(
        f"{group}.{member}", f"task-{group}", group, [segment], {"outcome": float(rng.random() < 0.5)}, counters
    )


@pytest.fixture
def folder(checkpoint, tmp_path) -> Path:
    """The run's, with the groups of all steps in it."""
    model, rng, store = load_checkpoint(checkpoint), np.random.default_rng(0), GroupStore(tmp_path / "groups")
    for group in range(STEPS * PER_STEP):
        prompt = rng.integers(0, 200, 12)
        store.save(group, [a_rollout(model, rng, group, member, prompt) for member in range(SIZE)])
    return tmp_path


class RankThread:
    """A rank's process that is a thread. `die_at` is the number of the call of `train` before which it dies."""

    def __init__(self, make: Callable[[], Any], die_at: int) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._made = self._thread.submit(make)
        self.die_at, self.dead = die_at, False

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any) -> Any:
            if method == "train":
                self.die_at -= 1
                self.dead |= self.die_at == 0
            if self.dead:
                raise ProcessDied(f"killed at {method}")
            work = lambda: getattr(self._made.result(), method)(*arguments)
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

        return call

    def kill(self) -> None:
        self.dead = True


class Places:
    """`lives[n]` says before which call of `train` each rank of the trainer's n-th life dies; 0 is never."""

    def __init__(
        self, checkpoint: Path, folder: Path, settings: RlSettings, lives: list[list[int]] | None = None
    ) -> None:
        self.checkpoint, self.folder, self.settings = checkpoint, folder, settings
        self.lives = lives or []
        self.started = 0

    def remember(self) -> None:
        """Threads end with the test."""

    def start_engine(self, region: str = "") -> None:
        """None is asked here."""

    def start_trainer(self) -> RankGroup:
        deaths = self.lives[self.started] if self.started < len(self.lives) else [0] * self.settings.ranks
        self.started += 1

        def start(rank: int, address: str) -> RankThread:
            meet = lambda: GlooRanks(address, HOST, rank, self.settings.ranks, self.settings.rank_silence_s)
            return RankThread(lambda: Learner(self.checkpoint, self.folder, self.settings, 1, meet()), deaths[rank])

        return RankGroup.start(self.settings.ranks, start, HOST)


def settings_for(ranks: int, **changes: Any) -> RlSettings:
    plain = {"steps": STEPS, "ranks": ranks, "rank_silence_s": 2.0, "max_restarts": 1, "kl_beta": 0.01}
    return RlSettings.model_validate(plain | {"update": {"warmup_steps": 0}} | changes)


async def train_all(places: Places) -> tuple[list[str], Services]:
    """The digests of all steps, one saved in the middle."""
    services = Services(places, places.settings, EventLogObserver(EventLog(places.folder / "events.jsonl")))
    await services.restore(0)
    digests = []
    for step in range(STEPS):
        trained = await services.train(step, list(range(step * PER_STEP, (step + 1) * PER_STEP)))
        digests.append(trained.digest)
        if step == 1:
            await services.save(step + 1)
    return digests, services


def by_one(checkpoint: Path, folder: Path, **changes: Any) -> Learner:
    learner = Learner(checkpoint, folder, settings_for(1, **changes), 1, ALONE)
    for step in range(STEPS):
        learner.train(list(range(step * PER_STEP, (step + 1) * PER_STEP)))
    return learner


async def test_two_ranks_train_what_one_does_and_again_to_the_bit(checkpoint, folder):
    places = Places(checkpoint, folder, settings_for(2))
    digests, services = await train_all(places)
    assert (await train_all(places))[0] == digests and len(set(digests)) == STEPS
    await services.export(folder / "exported")
    alone, exported = (
        by_one(checkpoint, folder).trainer.model.state_dict(),
        load_checkpoint(folder / "exported").state_dict(),
    )
    start = load_checkpoint(checkpoint).state_dict()
    # Adam divides by the gradient's size, so where that is all rounding a weight may go either way: it is a learning rate at most.
    off = [
        (exported[name] - weight).abs() / (weight - start[name]).abs().clamp(min=1e-4) for name, weight in alone.items()
    ]
    assert float(torch.cat([x.flatten() for x in off]).quantile(0.99)) < 0.02
    gaps = sorted(path.name for path in (folder / "gaps").iterdir())
    assert gaps == [f"{group:06d}.npy" for group in range(STEPS * PER_STEP)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("die_at", "draft_every"), [([0, 1], 0), ([0, 4], 0), ([3, 0], 0), ([0, 4], 1)])
async def test_a_rank_that_dies_takes_all_with_it_and_they_come_back_to_the_same_digests(
    checkpoint, folder, die_at, draft_every
):
    """In the first step, after a checkpoint, and rank 0 itself. Services compares the digests of steps trained again."""
    settings = settings_for(2, drafts={"every": draft_every})
    whole, _ = await train_all(Places(checkpoint, folder, settings))
    places = Places(checkpoint, folder, settings, lives=[die_at])
    digests, services = await train_all(places)
    assert digests == whole and places.started == 2 and services.restarts == 1


async def test_ranks_that_keep_dying_stop_the_run_within_its_bound(checkpoint, folder):
    begun = time.monotonic()
    with pytest.raises(ProcessLost, match="the trainer process died 2 times.*rank 1: killed at train"):
        await train_all(Places(checkpoint, folder, settings_for(2), lives=[[0, 2], [0, 1]]))
    assert time.monotonic() - begun < 30


async def test_a_rank_that_never_comes_ends_the_others_wait(checkpoint, folder):
    """It hangs while it is made: the others give the meeting up, which is a death of the trainer."""
    places = Places(checkpoint, folder, settings_for(2))

    def start(rank: int, address: str) -> RankThread:
        make = lambda: GlooRanks(address, HOST, 0, 2, 1.0)
        return RankThread(make if rank == 0 else lambda: time.sleep(4), 0)

    group = RankGroup.start(2, start, HOST)
    with pytest.raises(ProcessDied, match="did not meet all 2"):
        await group.restore(0)
    with pytest.raises(ProcessDied):
        await group.save(0)
    assert places.started == 0


async def test_an_error_of_one_rank_is_reported_as_it_is_and_not_as_the_others_loss(checkpoint, folder):
    places = Places(checkpoint, folder, settings_for(2))
    group = places.start_trainer()
    await group.restore(0)
    (folder / "groups" / "000001.zst").unlink()
    with pytest.raises(FileNotFoundError):
        await group.train([0, 1])


async def test_ranks_whose_weights_differ_are_found_out_at_once(checkpoint, folder):
    group = Places(checkpoint, folder, settings_for(2)).start_trainer()
    await group.restore(0)
    odd = group._ranks[1]._made.result()
    with torch.no_grad():
        odd.trainer.model.embed.weight[7, 3] += 1e-6
    with pytest.raises(RanksDiverged, match="after step 1 .* different weights"):
        await group.train([0, 1])


def drafts_in(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(folder, drafts=True).mtp.state_dict())


def test_fresh_drafts_go_to_the_engines_and_into_the_checkpoint_and_the_trunk_does_not_see_them(checkpoint, folder):
    plain, drafted = by_one(checkpoint, folder), by_one(checkpoint, folder, drafts={"every": 2})
    trunk = {name: t for name, t in drafted.trainer.model.state_dict().items() if not name.startswith("mtp.")}
    assert state_digest(trunk) == state_digest(plain.trainer.model.state_dict())
    for learner, name in ((plain, "plain"), (drafted, "drafted")):
        learner.export(folder / name)
    start, kept, taught = drafts_in(checkpoint), drafts_in(folder / "plain"), drafts_in(folder / "drafted")
    assert state_digest(kept) == state_digest(start) != state_digest(taught)
    assert drafted.publish(4) and drafted.publication_cost(4)
    received = Receiver(WeightStore(folder / "weights")).catch_up().state
    assert all(torch.equal(received[f"mtp.{name}"], tensor) for name, tensor in taught.items())
    for drafts in (True, False):
        model = load_checkpoint(checkpoint, drafts=drafts)
        load_checked(model, received)
        assert all(torch.equal(tensor, received[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("broken", [[1], [0, 1]])
def test_a_broken_group_teaches_nothing_by_feedback_or_to_drafts(checkpoint, folder, broken):
    store, half = GroupStore(folder / "groups"), folder / "half"
    for group in (0, 1):
        rollouts = store.load(group)
        for rollout in rollouts:
            stop = len(rollout.segments[0])
            rollout.info["hints"] = [{"segment": 0, "at": 12, "start": 12, "stop": stop, "ids": [5, 6]}]
        if group in broken:
            rollouts[0].segments[0].logprobs[-1] = np.nan
        store.save(group, rollouts)
    shutil.copytree(folder, half)
    settings = settings_for(1, kl_beta=0.0, drafts={"every": 1}, feedback={"weight": 1.0})
    whole, rest = (Learner(checkpoint, place, settings, 1, ALONE) for place in (folder, half))
    before = state_digest(whole.trainer.model.state_dict())
    found = whole.train([0, 1])
    assert len(found.notes) == len(broken) and found.figures["skipped"] == float(broken == [0, 1])
    if broken == [1]:
        assert found.digest == rest.train([0]).digest != before and found.figures["feedback_turns"] == SIZE
    else:
        assert found.digest == before and "feedback_turns" not in found.figures


def test_a_state_of_other_lessons_is_refused_with_the_remedy(checkpoint, folder):
    by_one(checkpoint, folder, drafts={"every": 1}).save(STEPS)
    with pytest.raises(TrainingStateError, match="another rl.drafts.every: put that back"):
        Learner(checkpoint, folder, settings_for(1), 1).restore(STEPS)


def test_a_state_of_an_earlier_version_is_read(checkpoint, folder):
    learner = by_one(checkpoint, folder)
    learner.save(STEPS)
    path = folder / "states" / f"state-{STEPS:08d}.pt"
    state = torch.load(path, weights_only=True)
    baseline = state.pop("baseline")
    torch.save({"trainer": state, "baseline": baseline}, path)
    again = Learner(checkpoint, folder, settings_for(1), 1)
    again.restore(STEPS)
    assert again.trainer.steps == STEPS and again._digest() == learner._digest()


def test_a_judge_that_the_settings_name_and_the_run_lacks_is_refused(checkpoint, folder):
    rewards = {"judge": "http://127.0.0.1:9/v1#m", "weights": {"judge": 0.1}}
    with pytest.raises(ValueError, match="rl.rewards.judge is 'http://127.0.0.1:9/v1#m', but the run has no judge"):
        run_rl(a_run(checkpoint, folder / "rl", rewards=rewards))
    assert not (folder / "rl").exists()


def test_lessons_without_draft_layers_are_refused_before_anything_starts(checkpoint, folder):
    save_checkpoint(load_checkpoint(checkpoint), folder / "bare", checkpoint)
    with pytest.raises(ValueError, match="has no draft layers: give it some"):
        run_rl(a_run(folder / "bare", folder / "rl", drafts={"every": 1}))


@pytest.mark.parametrize("baseline", ["group", "category"])
def test_a_reward_that_is_no_number_costs_its_group_and_is_named_by_its_part(checkpoint, folder, baseline):
    store = GroupStore(folder / "groups")
    for group in range(2):
        rollouts = store.load(group)
        for rollout in rollouts:
            rollout.info["category"] = "tests"
        if group == 1:
            rollouts[2].rewards["outcome"] = float("nan")
        store.save(group, rollouts)
    learner = Learner(checkpoint, folder, settings_for(1, baseline=baseline), 1)
    learner.restore(0)
    before = learner.trainer.model.state_dict()["head.weight"].clone()
    trained = learner.train([0, 1])
    assert trained.figures["skipped"] == 0 and trained.figures["dropped_groups"] == 1
    assert not torch.equal(before, learner.trainer.model.state_dict()["head.weight"])
    assert trained.notes[0] == "rollout 1.2 (task task-1): its reward's part outcome is nan"
    assert len(trained.notes) == 1 + SIZE and "its group 1 is left out of the step" in trained.notes[1]
    assert all(np.isfinite(mean) for mean in learner.means.means.values())
