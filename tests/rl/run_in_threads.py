"""The rl stage with processes that are threads of this one and die on demand, and the look at what it left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.core.trace.reader import read_session
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model, with_drafts
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore
from etude.rl.learner import Learner
from etude.rl.ledger import RlLedger, fold
from etude.rl.observer import EventLogObserver
from etude.rl.placement import EngineProcess
from etude.rl.restarts import ProcessDied
from etude.rl.run_context import RunContext
from etude.rl.schedule import task_list
from etude.rl.settings import RlSettings
from etude.rl.steps import read
from etude.rl.store import GroupStore
from etude.rl.training_run import run_training
from etude.rl.weight_store import store_of
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings

TINY = ModelSettings(
    hidden_size=32,
    layers=2,
    heads=2,
    kv_lora_rank=16,
    nope_dim=8,
    rope_dim=8,
    v_dim=8,
    dense_intermediate=48,
    moe_intermediate=16,
    experts=4,
    max_positions=1024,
)


def tiny_checkpoint(folder: Path) -> Path:
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = with_drafts(new_model(TINY, tokenizer.get_vocab_size()), 1, seed=0)  # which RL leaves aside
    save_checkpoint(model, folder / "model", folder)
    return folder / "model"


class InThread:
    """A process that is an object; `die_at` is the number of the call to `method` before which it dies."""

    def __init__(self, make: Callable[[], Any], die_at: dict[str, int]) -> None:
        self.inner = make()
        self.settings: EngineSettings | None = None
        self.die_at = die_at
        self.dead = False

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any) -> Any:
            if method in self.die_at:
                self.die_at[method] -= 1
                self.dead |= self.die_at[method] == 0
            if self.dead:
                raise ProcessDied(f"killed at {method}")
            if method == "poll":  # a thread can't be killed: it must not sit out the long poll after the run
                arguments = (*arguments, 0.1)
            result = await asyncio.to_thread(getattr(self.inner, method), *arguments)
            if self.dead:
                raise ProcessDied(f"killed during {method}")
            return result

        return call

    def kill(self) -> None:
        self.dead = True
        if isinstance(self.inner, EngineProcess):
            self.inner.close()


class Threads:
    def __init__(self, run: RunContext, **die_at: dict[str, int]) -> None:
        self.run = run
        self.die_at = die_at
        self.engine = run.engine
        self.engines: list[InThread] = []

    def remember(self) -> None:
        """Threads end with the test."""

    def start_engine(self, region: str = "") -> InThread:
        run = self.run
        weights = run.settings.regions[region].store if region else store_of(run.settings, run.folder)
        make = lambda: EngineProcess(run.checkpoint, weights, self.engine, run.settings.update.lora)
        self.engines.append(InThread(make, self.die_at.get(region or "engine", {})))
        self.engines[-1].settings = self.engine
        return self.engines[-1]

    def start_trainer(self) -> InThread:
        run = self.run
        return InThread(lambda: Learner(run.checkpoint, run.folder, run.settings, 1), self.die_at.get("trainer", {}))


def a_run(checkpoint: Path, folder: Path, **changes: Any) -> RunContext:
    small = {
        "steps": 3,
        "groups_per_step": 2,
        "group_size": 3,
        "slots": 6,
        "save_every": 2,
        "kl_beta": 0.01,
        "solvable_tasks": 0,
    }
    return RunContext(
        RlSettings.model_validate(small | changes),
        checkpoint,
        folder,
        ExerciseSource(ExerciseSettings()),
        HarnessSettings(max_turns=3, max_tokens_per_turn=16, summary_trigger_tokens=100),
        EngineSettings(),
        SandboxSettings(),
        EventLogObserver(EventLog(folder / "events.jsonl")),
    )


def live(run: RunContext, **die_at: dict[str, int]) -> tuple[dict[str, Any], Threads]:
    run.folder.mkdir(parents=True, exist_ok=True)
    places = Threads(run, **die_at)
    try:
        return asyncio.run(run_training(run, places)), places
    finally:
        for engine in places.engines:
            engine.kill()


def check_whole(run: RunContext) -> None:
    """Every task of the schedule trained once, within the bound, and the checkpoint is the newest weights bit by bit."""
    progress = fold(RlLedger(run.folder / "ledger.jsonl").entries)
    ids = task_list(run.settings, run.source).task_ids
    groups = [group for step in range(run.settings.steps) for group in progress.batches[step]]
    assert sorted(ids[group] for group in groups) == sorted(ids)
    store = GroupStore(run.folder / "groups")
    for step, batch in progress.batches.items():
        for group in batch:
            rollouts = store.load(group)
            assert len(rollouts) == run.settings.group_size
            assert all(step - r.start_version <= run.settings.max_staleness for r in rollouts if r.segments)
    published = Receiver(WeightStore(store_of(run.settings, run.folder))).catch_up()
    assert published.version == run.settings.steps
    lessons = run.settings.drafts.every > 0
    exported = load_checkpoint(run.folder / "checkpoint", drafts=lessons).state_dict()
    assert exported.keys() == published.state.keys()
    assert all(torch.equal(exported[name], tensor) for name, tensor in published.state.items())
    given, left = (
        load_checkpoint(f, drafts=True).mtp.state_dict() for f in (run.checkpoint, run.folder / "checkpoint")
    )
    assert given and all(torch.equal(left[name], tensor) for name, tensor in given.items()) != lessons
    check_sessions(run, store)


def check_sessions(run: RunContext, store: GroupStore) -> None:
    """The first group of every step's share lies there in full, token for token what was trained, with its reward."""
    trained = {}
    for record in read(run.folder / "steps.jsonl"):
        places = [(group, member) for group in record.groups for member in range(run.settings.group_size)]
        trained |= dict(zip(places, zip(record.components, record.advantages, strict=True), strict=True))
    kept = sorted((run.folder / "sessions").glob("step-*/*.jsonl"))
    assert len(kept) == run.settings.steps * run.settings.group_size
    for path in kept:
        session, (group, member) = read_session(path), map(int, path.stem.split("-"))
        assert path.parent.name == f"step-{group // run.settings.groups_per_step:03d}"
        rollout = store.load(group)[member]
        for segment, sample in zip(session.segments(), rollout.segments, strict=True):
            for name in ("ids", "sampled", "logprobs", "versions"):
                assert np.array_equal(getattr(segment, name), getattr(sample, name)), name
        score, judged = [entry.data for entry in session.of("verdict")]
        components, advantage = trained[group, member]
        assert score["score"] == rollout.rewards["outcome"] and judged["components"] == components
        assert (judged["reward"], judged["advantage"]) == (sum(components.values()), advantage)
