"""The policy gradient equals its formula, knows no segments, lengths or spread, and skips what is not finite."""

import copy

import numpy as np
import pytest
import torch

from etude.core.trace.segment import Rollout, Segment
from etude.learn.train.importance_settings import ImportanceSettings, TisSettings
from etude.learn.train.loop import TrainingDiverged
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.settings import PolicyStepSettings


def gradients(model, rollouts, advantages, **settings):
    """The gradient before clipping and Adam."""
    trainer = PolicyTrainer(model, None, PolicyStepSettings(clip_norm=1e9, **settings))
    trainer._optimizers.step = trainer._optimizers.zero_grad = lambda: None  # keep it where it can be read
    model.zero_grad(set_to_none=True)
    trainer.update(rollouts, advantages, trainer.score(rollouts))
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def assert_same(first, second, atol=1e-7):
    for name, grad in first.items():
        torch.testing.assert_close(grad, second[name], rtol=1e-4, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def by_hand(model, rollouts, advantages, loss_tokens, cap):
    """The formula, one token after another, every segment alone, with the recorded experts forced."""
    model.zero_grad(set_to_none=True)
    loss = torch.zeros(())
    for rollout, advantage in zip(rollouts, advantages, strict=True):
        for segment in rollout.segments:
            ids = torch.from_numpy(segment.ids).long()[None]
            out = model(ids, forced_experts=torch.from_numpy(segment.routes)[None])
            logprobs = torch.log_softmax(out.logits[0], -1)
            for t in np.flatnonzero(segment.sampled):
                logprob = logprobs[t - 1, ids[0, t]]
                ratio = torch.exp(logprob.detach() - segment.logprobs[t])
                loss = loss - advantage * torch.clamp(ratio, max=cap) * logprob
    (loss / (len(rollouts) * loss_tokens)).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("graph_tokens", [0, 100_000])
def test_gradient_equals_the_formula(model, make, graph_tokens):
    rollouts = make.rollouts(make.model(seed=1, family=model.config.family), 6)  # sampled by other weights
    advantages = [0.5, -0.25, 1.0, 0.0, -1.0, 0.1]
    got = gradients(
        model, rollouts, advantages, loss_tokens=17, trust=ImportanceSettings(tis=TisSettings(cap=1.3)), replay_ratio=0.0,
        batch_tokens=64,
        graph_tokens=graph_tokens,
    )  # fmt: skip
    assert_same(got, by_hand(model, rollouts, advantages, 17, 1.3))
    assert max(g.abs().max() for g in got.values()) > 1e-4


def test_keeping_the_graph_changes_no_gradient(model, make):
    rollouts, advantages = make.rollouts(model, 6), [0.5, -0.25, 1.0, 0.0, -1.0, 0.1]
    kept, twice, auto = (
        gradients(model, rollouts, advantages, batch_tokens=64, graph_tokens=n) for n in (100_000, 0, "auto")
    )
    assert all(torch.equal(kept[name], grad) for name, grad in twice.items())
    assert all(torch.equal(auto[name], grad) for name, grad in twice.items())
    assert max(g.abs().max() for g in kept.values()) > 1e-4


def cut(rollout, at):
    """The rollout as a chain of segments: each repeats its prefix as a prompt and trains only its own sampled tokens."""
    (whole,) = rollout.segments
    parts = []
    for start, stop in zip([0, *at], [*at, len(whole)], strict=True):
        mine = whole.sampled[:stop] & (np.arange(stop) >= start)
        parts.append(
            Segment(
                ids=whole.ids[:stop],
                sampled=mine,
                logprobs=np.where(mine, whole.logprobs[:stop], 0).astype(np.float32),
                versions=np.where(mine, whole.versions[:stop], -1).astype(np.int32),
                routes=whole.routes[:stop],
            )
        )
    return Rollout(rollout.id, rollout.task_id, rollout.group, parts)


@pytest.mark.parametrize("cuts", [[5], [4, 7], [3, 4, 5, 6]])
def test_gradient_is_invariant_to_segmentation(model, make, cuts):
    rollouts = make.rollouts(model, 5)
    advantages = [0.5, -0.25, 1.0, 0.3, -1.0]
    whole = gradients(model, rollouts, advantages)
    pieces = gradients(model, [cut(r, cuts) if i % 2 == 0 else r for i, r in enumerate(rollouts)], advantages)
    assert_same(whole, pieces)


def test_a_self_summarys_tokens_are_trained_with_the_advantage_of_the_whole_chain(model, make):
    """A rollout of two segments, the first of which ends with the summary that the second begins with. Left out of the loss the summary's
    tokens leave another gradient: what is missing is their own part, advantage and all, and nothing else changes."""
    draw = np.random.default_rng(5).integers
    request, work, summary, rest = (draw(0, make.vocabulary, n) for n in (6, 7, 5, 8))
    trained = [False] * 6 + [True] * 7
    whole = make.segment(model, np.concatenate((request, work, summary)), [*trained, *[True] * 5])
    after = make.segment(model, np.concatenate((request, summary, rest)), [False] * 11 + [True] * 8)
    masked = make.segment(model, np.concatenate((request, work, summary)), [*trained, *[False] * 5])
    alone = make.segment(model, np.concatenate((request, work, summary)), [False] * 13 + [True] * 5)
    (other,) = make.rollouts(model, 1)
    for advantage in (0.7, -0.4):
        batch = lambda *segments: [Rollout("0", "t", 0, list(segments)), other]
        full, without, own = (
            gradients(model, batch(*segments), [advantage, 0.0], replay_ratio=0.0)
            for segments in ((whole, after), (masked, after), (alone,))
        )
        assert max(float(part.abs().max()) for part in own.values()) > 1e-5
        assert_same(full, {name: without[name] + own[name] for name in full})
        up = gradients(model, batch(alone), [2 * advantage, 0.0], replay_ratio=0.0)
        assert_same(up, {name: 2 * part for name, part in own.items()})


def test_gradient_does_not_depend_on_batch_size_or_order(model, make):
    rollouts = make.rollouts(model, 8)
    advantages = np.random.default_rng(0).normal(size=8).tolist()
    reference = gradients(model, rollouts, advantages, batch_tokens=4096)
    assert_same(reference, gradients(model, rollouts, advantages, batch_tokens=64))
    assert_same(reference, gradients(model, rollouts[::-1], advantages[::-1], batch_tokens=256))


def test_groups_without_spread_give_zero_gradient(model, make):
    rollouts = make.rollouts(model, 4)
    assert all((g == 0).all() for g in gradients(model, rollouts, [0.0] * 4).values())


def test_adding_tokens_of_other_rollouts_does_not_shrink_a_rollout(model, make):
    """No length normalisation: a rollout's part of the gradient is the same next to a short and a long neighbour."""
    first, short, long = make.rollouts(model, 3, seed=3)
    alone = [gradients(model, [first, other], [1.0, 0.0]) for other in (short, long)]
    assert_same(*alone)


def test_one_step_raises_good_rollouts_and_lowers_bad_ones(model, make):
    rollouts = make.rollouts(model, 4)
    trainer = PolicyTrainer(model, None, PolicyStepSettings(lr=1e-3, warmup_steps=0))
    before = trainer.score(rollouts)
    trainer.update(rollouts, [1.0, 1.0, -1.0, -1.0], before)
    after = trainer.score(rollouts)
    change = [float((a[0] - b[0]).sum()) for a, b in zip(after.current, before.current, strict=True)]
    assert change[0] > 0 and change[1] > 0 and change[2] < 0 and change[3] < 0
    assert trainer.steps == 1


def test_replaying_the_engines_experts_reproduces_its_logprobs(model, make):
    rollouts = make.rollouts(model, 6)
    trainer = PolicyTrainer(model, None, PolicyStepSettings(replay_ratio=0.5))
    scores = trainer.score(rollouts)
    assert scores.mismatch.k3 < 1e-9 and scores.mismatch.p99 < 1e-5
    assert scores.replay.replayed > 0 and scores.replay.replaced == 0 and scores.replay.agreement == 1.0
    for rollout, current in zip(rollouts, scores.current, strict=True):
        (segment,) = rollout.segments
        np.testing.assert_allclose(current[0], segment.logprobs, atol=1e-5)


def test_replay_matters_when_routes_are_not_the_trainers_own(model, make):
    """With pure replay of other experts logprobs move; without replay they are the model's own again."""
    rollouts = make.rollouts(model, 6)
    rng = np.random.default_rng(0)
    for rollout in rollouts:
        routes = rollout.segments[0].routes
        routes[:-1] = rng.permuted(np.tile(np.arange(4), (*routes[:-1].shape[:2], 1)), axis=-1)[..., :2]
    forced = PolicyTrainer(model, None, PolicyStepSettings(replay_ratio=0.0)).score(rollouts)
    free = PolicyTrainer(model, None, PolicyStepSettings(router_replay=False)).score(rollouts)
    assert forced.mismatch.p99 > 1e-2 and forced.replay.agreement < 0.9
    assert free.mismatch.p99 < 1e-5 and free.replay.replayed == 0


def test_a_batch_scored_without_replay_too_tells_what_replay_is_worth_and_teaches_the_same(model, make):
    other = make.model(seed=1, family=model.config.family)
    batches = [make.rollouts(other, 6, seed=n) for n in range(3)]
    figures, weights = {}, {}
    for every in (0, 2):
        trainer = PolicyTrainer(copy.deepcopy(model), None, PolicyStepSettings(unreplayed_every=every, lr=1e-3))
        figures[every] = [trainer.update(batch, [1.0, -1.0] * 3, trainer.score(batch)) for batch in batches]
        weights[every] = trainer.model.state_dict()
    assert all(torch.equal(tensor, weights[2][name]) for name, tensor in weights[0].items())
    result = [[name for name in step if name.endswith("_unreplayed")] for step in figures[2]]
    assert result == [["k3_unreplayed", "p99_abs_dlogp_unreplayed"], [], ["k3_unreplayed", "p99_abs_dlogp_unreplayed"]]
    free = PolicyTrainer(model, None, PolicyStepSettings(router_replay=False)).score(batches[0])
    assert figures[2][0]["p99_abs_dlogp_unreplayed"] == pytest.approx(free.mismatch.p99, rel=1e-6)
    assert figures[2][0]["p99_abs_dlogp_unreplayed"] != figures[2][0]["p99_abs_dlogp"]
    assert free.unreplayed is None, "nothing to compare with where nothing is replayed"


def test_reference_logprobs_are_those_of_the_reference(model, make):
    other = make.model(seed=5, family=model.config.family)
    rollouts = make.rollouts(other, 3)  # sampled by the reference itself
    scores = PolicyTrainer(model, copy.deepcopy(other), PolicyStepSettings()).score(rollouts)
    assert scores.reference is not None
    for rollout, reference in zip(rollouts, scores.reference, strict=True):
        np.testing.assert_allclose(reference[0], rollout.segments[0].logprobs, atol=1e-5)
        assert reference[0].shape == rollout.segments[0].ids.shape
    assert PolicyTrainer(model, None, PolicyStepSettings()).score(rollouts).reference is None


def test_temperature_is_part_of_the_distribution(model, make):
    rollouts = make.rollouts(model, 2)
    got = PolicyTrainer(model, None, PolicyStepSettings(temperature=0.5)).score(rollouts).current
    (segment,) = rollouts[0].segments
    ids = torch.from_numpy(segment.ids).long()
    want = torch.log_softmax(model(ids[None]).logits[0] / 0.5, -1)
    t = int(np.flatnonzero(segment.sampled)[0])
    assert got[0][0][t] == pytest.approx(want[t - 1, ids[t]].item(), abs=1e-5)


def test_tokens_are_counted_by_their_lag(model, make):
    rollouts = make.rollouts(model, 2, version=0)
    trainer = PolicyTrainer(model, None, PolicyStepSettings())
    trainer.update(rollouts, [1.0, -1.0], trainer.score(rollouts))
    figures = trainer.update(rollouts, [1.0, -1.0], trainer.score(rollouts))
    assert (
        figures["tokens_lag_1"] == figures["sampled_tokens"] == sum(int(r.segments[0].sampled.sum()) for r in rollouts)
    )


def test_a_gradient_that_is_not_finite_changes_nothing_and_stops_the_run_in_the_end(model, make):
    rollouts = make.rollouts(model, 2)
    trainer = PolicyTrainer(model, None, PolicyStepSettings(bad_steps_limit=2))
    before = copy.deepcopy(model.state_dict())
    figures = trainer.update(rollouts, [float("nan"), 1.0], trainer.score(rollouts))
    assert figures["skipped"] == 1.0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(TrainingDiverged):
        trainer.update(rollouts, [float("inf"), 1.0], trainer.score(rollouts))


def test_stale_scores_and_missing_advantages_are_refused(model, make):
    rollouts = make.rollouts(model, 2)
    trainer = PolicyTrainer(model, None, PolicyStepSettings())
    scores = trainer.score(rollouts)
    with pytest.raises(ValueError, match="1 advantages for 2 rollouts"):
        trainer.update(rollouts, [1.0], scores)
    trainer.update(rollouts, [1.0, -1.0], scores)
    with pytest.raises(ValueError, match="score again"):
        trainer.update(rollouts, [1.0, -1.0], scores)


def test_a_resumed_trainer_goes_on_bit_identical(model, make, tmp_path):
    from etude.learn.train.checkpoint import load_state, save_state

    rollouts = make.rollouts(model, 4)
    other = make.model(seed=9, family=model.config.family)

    def steps(trainer, count):
        for _ in range(count):
            trainer.update(rollouts, [1.0, 0.5, -0.5, -1.0], trainer.score(rollouts))

    first = PolicyTrainer(model, None, PolicyStepSettings())
    steps(first, 2)
    path = save_state(tmp_path, 2, first.state_dict(), keep=1)
    steps(first, 2)
    second = PolicyTrainer(other, None, PolicyStepSettings())
    second.load_state_dict(load_state(path))
    steps(second, 2)
    assert second.steps == 4
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())


def test_scripted_rollouts_without_routes_or_sampled_tokens_are_fine(model, make):
    ids = np.arange(10) % make.vocabulary
    with_none = make.segment(model, ids, np.arange(10) > 4)
    with_none.routes = None
    silent = make.segment(model, ids, np.zeros(10, bool))
    rollouts = [Rollout("a", "t", 0, [with_none]), Rollout("b", "t", 0, [silent])]
    trainer = PolicyTrainer(model, None, PolicyStepSettings())
    scores = trainer.score(rollouts)
    assert scores.mismatch.p99 < 1e-5 and scores.replay.replayed == 0
    assert trainer.update(rollouts, [1.0, -1.0], scores)["sampled_tokens"] == 5
