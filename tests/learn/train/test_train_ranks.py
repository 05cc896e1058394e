"""Ranks over gloo, as threads: as many of them as one likes come to one gradient, whose bits repeat; and no death or silence among
them lets the others wait for ever (promises 4, 6)."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from etude.core.trace.segment import Rollout, Segment
from etude.learn.parallel.launched import RankLost
from etude.learn.train import gloo_ranks
from etude.learn.train.gloo_ranks import GlooRanks, Rendezvous
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.ranks import ALONE, Ranks
from etude.learn.train.settings import PolicyStepSettings
from etude.learn.weights.state import state_digest

ADVANTAGES = [0.5, -0.25, 1.0, 0.3, -1.0, 0.1, 0.7, -0.6, 0.2]


def on(size: int, work: Callable[[Ranks], Any], silence_s: float = 60.0) -> list[Any]:
    """What `work` returns or raises on each of `size` ranks."""
    if size == 1:
        return [work(ALONE)]
    meeting = Rendezvous("127.0.0.1")

    def one(rank: int) -> Any:
        try:
            return work(GlooRanks(meeting.address, "127.0.0.1", rank, size, silence_s))
        except RankLost as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def gradient(model: Any, rollouts: list[Rollout], **settings: Any) -> Callable[[Ranks], dict[str, torch.Tensor]]:
    """Before clipping and Adam."""

    def work(ranks: Ranks) -> dict[str, torch.Tensor]:
        own = copy.deepcopy(model)
        trainer = PolicyTrainer(own, None, PolicyStepSettings(clip_norm=1e9, **settings), ranks=ranks)
        trainer._optimizers.step = trainer._optimizers.zero_grad = lambda: None
        trainer.update(rollouts, ADVANTAGES[: len(rollouts)], trainer.score(rollouts))
        return {name: p.grad for name, p in own.named_parameters() if p.grad is not None}

    return work


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, grad in first.items():
        torch.testing.assert_close(grad, second[name], rtol=1e-4, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")


def cut(rollout: Rollout, at: int) -> Rollout:
    """The rollout as two segments: the second repeats the first as its prompt."""
    (whole,) = rollout.segments
    parts = []
    for start, stop in ((0, at), (at, len(whole))):
        mine = whole.sampled[:stop] & (np.arange(stop) >= start)
        logprobs = np.where(mine, whole.logprobs[:stop], 0).astype(np.float32)
        versions = np.where(mine, whole.versions[:stop], -1).astype(np.int32)
        routes = whole.routes
        assert routes is not None
        parts.append(Segment(whole.ids[:stop], mine, logprobs, versions, routes[:stop]))
    return Rollout(rollout.id, rollout.task_id, rollout.group, parts)


@pytest.mark.parametrize("graph_tokens", [0, 100_000])
def test_one_two_and_three_ranks_come_to_one_gradient(model, make, graph_tokens):
    rollouts = make.rollouts(make.model(seed=1, family=model.config.family), 9)
    work = gradient(model, rollouts, graph_tokens=graph_tokens, batch_tokens=64)
    (alone,) = on(1, work)
    assert max(float(g.abs().max()) for g in alone.values()) > 1e-4
    for size in (2, 3):
        found = on(size, work)
        assert_same(alone, found[0])
        for other in found[1:]:
            assert all(torch.equal(other[name], grad) for name, grad in found[0].items()), "ranks differ by a bit"


def test_the_gradient_over_ranks_is_invariant_to_segmentation(model, make):
    rollouts = make.rollouts(model, 6)
    (whole,) = on(1, gradient(model, rollouts))
    for size in (2, 3):
        pieces = on(size, gradient(model, [cut(r, 5) if i % 2 else r for i, r in enumerate(rollouts)]))
        assert_same(whole, pieces[0])


def test_more_ranks_than_rows_and_groups_without_spread_change_nothing(model, make):
    rollouts = make.rollouts(model, 2)
    (alone,) = on(1, gradient(model, rollouts))
    assert_same(alone, on(3, gradient(model, rollouts))[2])

    def idle(ranks: Ranks) -> list[bool]:
        trainer = PolicyTrainer(copy.deepcopy(model), None, PolicyStepSettings(), ranks=ranks)
        trainer.update(rollouts, [0.0, 0.0], trainer.score(rollouts))
        return [bool(state) for state in trainer._optimizers.state_dict()[0]["state"].values()]

    assert on(2, idle) == [[], []], "Adam's moments begin although nothing was learnt"


def test_scores_and_figures_are_those_of_one_rank_and_weights_repeat_to_the_bit(model, make):
    rollouts = make.rollouts(make.model(seed=1, family=model.config.family), 9)

    def steps(ranks: Ranks) -> tuple[Any, ...]:
        own, settings = copy.deepcopy(model), PolicyStepSettings(router_bias_rate=0.01, warmup_steps=0)
        trainer = PolicyTrainer(own, make.model(seed=3, family=model.config.family), settings, ranks=ranks)
        scores = trainer.score(rollouts)
        arrays = [scores.current, scores.reference]
        figures = trainer.update(rollouts, ADVANTAGES, scores)
        trainer.update(rollouts, ADVANTAGES, trainer.score(rollouts))
        return arrays, figures, state_digest(own.state_dict())

    ((arrays, figures, _),) = on(1, steps)
    first, again = on(2, steps), on(2, steps)
    assert len({digest for _, _, digest in (*first, *again)}) == 1
    for found, result, _ in first:
        for mine, theirs in zip(arrays, found, strict=True):
            for ours, other in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(ours[0], other[0], atol=1e-5)
        assert result.pop("rank_imbalance") < 1.25
        # A group that two ranks share runs its common beginning, and routes it, twice.
        assert all(
            result.pop(name) >= figures[name] for name in ("forwarded_tokens", "replayed_routes", "replaced_routes")
        )
        assert 0 < result.pop("expert_agreement") <= 1
        for name, value in result.items():
            assert value == pytest.approx(figures[name], rel=1e-3, abs=1e-6), name


def test_a_sum_adds_rank_by_rank_in_their_order(monkeypatch):
    """fp32 addition does not associate: (1 + 1e8) - 1e8 is 0, 1 + (1e8 - 1e8) is 1."""
    monkeypatch.setattr(gloo_ranks, "BUCKET_ELEMENTS", 4)
    parts = [1.0, 1e8, -1e8]

    def work(ranks: Ranks) -> list[torch.Tensor]:
        held = [torch.full(shape, parts[ranks.rank]) for shape in ((2, 3), (1,), (5,), ())]
        held.append(torch.full((2,), ranks.rank, dtype=torch.int64))
        ranks.total(held)
        return held

    for found in on(3, work):
        assert [t.shape for t in found] == [(2, 3), (1,), (5,), (), (2,)]
        assert all(bool((t == 0).all()) for t in found[:4]) and found[4].tolist() == [3, 3]


def test_values_of_any_size_reach_all_by_rank():
    def work(ranks: Ranks) -> list[Any]:
        return ranks.gather(
            {"rank": ranks.rank, "text": "a" * 1000 * ranks.rank, "t": torch.ones(ranks.rank), "none": None}
        )

    for found in on(3, work):
        assert [(value["rank"], len(value["text"]), len(value["t"])) for value in found] == [
            (0, 0, 0),
            (1, 1000, 1),
            (2, 2000, 2),
        ]


@pytest.mark.parametrize("how", ["silent", "never came"])
def test_a_silent_rank_ends_the_meeting_of_all_in_bounded_time(how):
    over = threading.Event()

    def work(ranks: Ranks) -> None:
        if ranks.rank == 1:
            over.wait(20)
            return
        try:
            ranks.total([torch.ones(3)])
        finally:
            over.set()

    begun = time.monotonic()
    if how == "silent":
        found = on(2, work, silence_s=0.5)
    else:
        meeting = Rendezvous("127.0.0.1")
        with pytest.raises(RankLost, match="rank 0 did not meet all 2") as error:
            GlooRanks(meeting.address, "127.0.0.1", 0, 2, 0.5)
        found = [error.value]
    assert isinstance(found[0], RankLost) and time.monotonic() - begun < 15


def test_a_meeting_listens_on_the_given_address_alone():
    meeting = Rendezvous("127.0.0.1")
    port = int(meeting.address.rsplit(":", 1)[1])
    listening = [line.split() for file in ("tcp", "tcp6") for line in open(f"/proc/net/{file}").readlines()[1:]]
    assert [fields[1] for fields in listening if fields[3] == "0A" and fields[1].endswith(f":{port:04X}")] == [
        f"0100007F:{port:04X}"
    ]
