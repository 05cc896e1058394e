"""Run as `python computing.py WHAT DEVICE`: one piece of RL's arithmetic on the CPU and on `pretend` or `cuda`; both results, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pretend_device
import torch
from context_lab import in_ranks
from engine_lab import answer, ask, drain, prompt, small_model
from train_lab import random_rollouts, tiny_model

from etude.core.events.log import EventLog
from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import probe_prompts
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.device import compute_reproducibly, on_device
from etude.learn.model.init import with_drafts
from etude.learn.parallel.shared_training import ContextRank
from etude.learn.train.batch import TrainBatch, padded_batch, shared_batch
from etude.learn.train.checkpoint import load_state, save_state
from etude.learn.train.context_share import ContextBatch, context_part
from etude.learn.train.evaluate import evaluate
from etude.learn.train.feedback import FlaggedTurn, add_feedback
from etude.learn.train.feedback_settings import FeedbackSettings
from etude.learn.train.fresh_drafts import FreshDrafts
from etude.learn.train.gloo_ranks import GlooRanks, Rendezvous
from etude.learn.train.likelihood import answer_nats
from etude.learn.train.mtp_settings import FreshDraftsSettings
from etude.learn.train.next_token import NextToken
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.settings import PolicyStepSettings, SftSettings
from etude.learn.train.sft import run_sft
from etude.learn.weights.state import copy_state, state_digest

ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 0.3, -0.3, 0.2, -0.2]
UPDATE = PolicyStepSettings(
    warmup_steps=0, lr=1e-3, batch_tokens=64, graph_tokens=200, unreplayed_every=1, router_bias_rate=0.01
)


def policy_step(device: str) -> dict[str, Any]:
    """Two steps with all that a step can have: replay and its comparison, a reference, balanced routers, micro-batches, feedback."""
    rollouts = random_rollouts(tiny_model(seed=1), 8)
    model = tiny_model().to(device)
    trainer = PolicyTrainer(model, tiny_model(seed=2).to(device), UPDATE)
    turns = [_flagged(rollout.segments[0]) for rollout in rollouts[:3]]
    figures, scores = [], None
    for _ in range(2):
        scores = trainer.score(rollouts)
        fed = add_feedback(model, turns, len(rollouts), FeedbackSettings(weight=0.5), UPDATE)
        figures.append(fed | trainer.update(rollouts, ADVANTAGES, scores))
    assert scores is not None and scores.reference is not None
    return {"figures": figures, "weights": squares(model), "reference": [float(x[0].sum()) for x in scores.reference]}


def _flagged(segment: Any) -> FlaggedTurn:
    stop = int(np.flatnonzero(segment.sampled)[-1]) + 1
    return FlaggedTurn(segment, stop - 1, stop - 1, stop, (30, 31))


def resume(device: str) -> dict[str, Any]:
    """A step, its state on the disk and in another trainer, a step in both: whether they come to the same bits, and what is sent out."""
    rollouts = random_rollouts(tiny_model(seed=1), 8)
    first, second = (PolicyTrainer(tiny_model().to(device), None, UPDATE) for _ in range(2))
    first.update(rollouts, ADVANTAGES, first.score(rollouts))
    with tempfile.TemporaryDirectory() as folder:
        second.load_state_dict(load_state(save_state(Path(folder), 1, first.state_dict(), 1)))
    for trainer in (first, second):
        trainer.update(rollouts, ADVANTAGES, trainer.score(rollouts))
    states = [copy_state(trainer.model.state_dict()) for trainer in (first, second)]
    assert all(tensor.device.type == "cpu" for tensor in states[0].values())
    same = state_digest(states[0]) == state_digest(states[1]) == state_digest(first.model.state_dict())
    return {"same": same, "weights": squares(first.model)}


def two_ranks(device: str) -> dict[str, Any]:
    """A step of two trainers, each on its share; threads stand for their processes."""
    rollouts, meeting = random_rollouts(tiny_model(seed=1), 8), Rendezvous("127.0.0.1")

    def rank(number: int) -> dict[str, Any]:
        with pretend_device.Pretend() if device == pretend_device.NAME else nullcontext():
            model = tiny_model().to(device)
            ranks = GlooRanks(meeting.address, "127.0.0.1", number, 2, 60.0)
            trainer = PolicyTrainer(model, None, UPDATE, ranks=ranks)
            figures = trainer.update(rollouts, ADVANTAGES, trainer.score(rollouts))
            return {"figures": figures, "weights": squares(model), "digest": state_digest(model.state_dict())}

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(rank, range(2))
    return {
        "figures": first["figures"],
        "weights": first["weights"],
        "same": first.pop("digest") == second.pop("digest"),
    }


def shared_context(device: str) -> dict[str, Any]:
    """The loss of rows and of a tree whose tokens two ranks share, and what follows each token; threads stand for their processes."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, 40, length) for length in (40, 7, 19)]
    alike = [np.concatenate((rows[0], row)) for row in rows]
    weights = [np.minimum(np.arange(len(row), dtype=np.float32), 1) for row in rows]
    of_tree = [np.minimum(np.arange(len(row), dtype=np.float32), 1) for row in alike]
    batches = {"rows": padded_batch(rows, weights), "tree": shared_batch(alike, of_tree)}

    def rank(batch: TrainBatch, context: ContextRank) -> dict[str, Any]:
        with pretend_device.Pretend() if device == pretend_device.NAME else nullcontext(), torch.no_grad():
            part = context_part(batch, context).to(torch.device(device))
            loss = NextToken(tiny_model().to(device), 0.0).loss(part)
            assert isinstance(part, ContextBatch)
            ahead = [] if batch.tree is not None else part.part.ahead(part.ids, 2).cpu().tolist()
            return {"loss": float(loss.cpu()), "ahead": ahead}

    return {name: in_ranks(2, partial(rank, batch)) for name, batch in batches.items()}


def draft_lessons(device: str) -> dict[str, Any]:
    """Draft layers after a policy step."""
    model = with_drafts(tiny_model(), 2, seed=1).to(device)
    rollouts = random_rollouts(tiny_model(seed=1), 8)
    drafts = FreshDrafts(model, FreshDraftsSettings(every=1, router_bias_rate=0.01), UPDATE)
    return {"figures": drafts.after(1, rollouts), "weights": squares(model)}


def sampling(device: str) -> dict[str, Any]:
    """Greedy and drawn tokens, plain and with drafts, with new weights in between."""
    found = {}
    for drafts in (0, 2):
        settings = EngineSettings(max_len=64, draft_tokens=drafts, swap_cache="recompute")
        core = EngineCore(
            with_drafts(small_model("qwen3_moe"), 2, seed=1), settings.model_copy(update={"device": device})
        )
        requests = [ask(f"s{n}", prompt(n, 9 + n), seed=n, temperature=float(n % 2)) for n in range(4)]
        tickets = [core.submit(request) for request in requests]
        core.step()
        core.swap(small_model("qwen3_moe", seed=1).state_dict(), 1)
        done = drain(core)
        again = answer(core, ask("s0", (*prompt(0, 9), *done[tickets[0]].tokens.ids), seed=9))
        tokens = [done[ticket].tokens for ticket in tickets] + [again[0].tokens]
        found[f"drafts {drafts}"] = [
            {"ids": t.ids, "versions": t.versions, "logprobs": t.logprobs, "routes": int(t.routes.sum())}
            for t in tokens
        ]
    return found


def fine_tuning(device: str) -> dict[str, Any]:
    """Steps of the loop that all supervised stages share, draft layers included, as a whole and resumed; held-out perplexity after them."""
    segments = [rollout.segments[0] for rollout in random_rollouts(tiny_model(seed=1), 12)]

    def trained(folder: Path, steps: int) -> tuple[Any, Any]:
        model = with_drafts(tiny_model(family="qwen3_moe"), 2, seed=1)
        choice = {
            "loop": {"steps": steps, "checkpoint_every": 2},
            "batch_tokens": 64,
            "schedule": {"shape": "constant"},
        }
        settings = SftSettings.model_validate(choice)
        settings = settings.model_copy(update={"loop": settings.loop.model_copy(update={"device": device})})
        log = EventLog(folder.with_suffix(".jsonl"))
        return model, run_sft(settings, model, segments, folder, log, draft_every=2)

    with tempfile.TemporaryDirectory() as folder:
        model, result = trained(Path(folder) / "whole", 6)
        trained(Path(folder) / "halves", 3)
        resumed, _ = trained(Path(folder) / "halves", 6)
    same = state_digest(model.state_dict()) == state_digest(resumed.state_dict())
    assert model.embed.weight.device.type == "cpu"  # as it came
    with on_device(model, device, "device"):
        held = evaluate(model, probe_prompts(40, seed=3), 100)
        nats = answer_nats(model, [[1, 2, 3], [4, 5]], [[6], [7, 8]])
    assert held is not None
    figures = {"loss": result.loss, "heldout": held.loss, "nats": nats.tolist()}
    return {"same": same, "figures": figures, "weights": squares(model)}


def squares(model: Any) -> dict[str, float]:
    return {name: float(tensor.cpu().double().square().sum()) for name, tensor in model.state_dict().items()}


PIECES = {
    piece.__name__: piece
    for piece in (policy_step, resume, two_ranks, shared_context, draft_lessons, sampling, fine_tuning)
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    piece, device = PIECES[sys.argv[1]], sys.argv[2]
    if device == pretend_device.NAME:
        pretend_device.begin()  # before the first backward pass, which counts devices
    elif piece is not fine_tuning:  # whose loop asks for it itself
        compute_reproducibly(torch.device(device))
    found = {"cpu": piece("cpu")}
    with pretend_device.Pretend() if device == pretend_device.NAME else nullcontext():
        found["other"] = piece(device)
    print(json.dumps(found))
