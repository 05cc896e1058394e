"""A flagged turn moves towards what a hint would have made of it; other turns stay, and without weight nothing changes at all."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.segment import NO_ROUTE, Rollout
from etude.learn.train.feedback import FlaggedTurn, add_feedback, distributions, divergences
from etude.learn.train.feedback_settings import FeedbackSettings
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.settings import PolicyStepSettings

torch.set_num_threads(1)

UPDATE = PolicyStepSettings(lr=1e-3, warmup_steps=0)
HINT = (30, 31, 32)
PROMPT, ASSISTANT, WRONG, RIGHT, END = [5, 6, 7, 8], 2, 11, 12, 3
OTHER = [15, 16, 17, 18]


def flagged(segment, hint=HINT):
    """The last run of sampled tokens as a turn, its generation prompt one token long."""
    stop = int(np.flatnonzero(segment.sampled)[-1]) + 1
    start = stop
    while start and segment.sampled[start - 1]:
        start -= 1
    return FlaggedTurn(segment, start - 1, start, stop, hint)


def logprobs(model, hidden):
    return torch.log_softmax(model.head(hidden).float(), -1)


def test_without_weight_or_flagged_turns_a_step_is_bit_for_bit_the_same(model, make):
    rollouts = make.rollouts(model, 4)
    advantages = [1.0, -0.5, 0.25, -0.75]
    turns = [flagged(rollout.segments[0]) for rollout in rollouts]
    plain, idle, empty = (PolicyTrainer(copy.deepcopy(model), None, UPDATE) for _ in range(3))
    for trainer, given_turns, weight in ((plain, None, 0.0), (idle, turns, 0.0), (empty, [], 1.0)):
        for _ in range(2):
            scores = trainer.score(rollouts)
            if given_turns is not None:
                assert add_feedback(trainer.model, given_turns, 4, FeedbackSettings(weight=weight), UPDATE) == {}
            trainer.update(rollouts, advantages, scores)
    for other in (idle, empty):
        for name, value in plain.model.state_dict().items():
            assert torch.equal(value, other.model.state_dict()[name]), name


def test_the_students_positions_and_routes_are_those_of_the_policy_loss(model, make):
    (rollout,) = make.rollouts(make.model(seed=4, family=model.config.family), 1)  # sampled, and routed, by others
    (segment,) = rollout.segments
    update = UPDATE.model_copy(update={"replay_ratio": 0.0})
    turn = flagged(segment)
    (current,) = PolicyTrainer(model, None, update).score([rollout]).current[0]
    student, _ = distributions(model, turn, update)
    targets = torch.from_numpy(segment.ids[turn.start : turn.stop]).long()
    own = logprobs(model, student).gather(-1, targets[:, None])[:, 0]
    np.testing.assert_allclose(own.detach().numpy(), current[turn.start : turn.stop], atol=1e-5)


def test_the_teacher_sees_the_hint_where_it_belongs_and_routes_behind_it_for_itself(model, make):
    (rollout,) = make.rollouts(make.model(seed=4, family=model.config.family), 1)
    (segment,) = rollout.segments
    turn = flagged(segment)
    update = UPDATE.model_copy(update={"replay_ratio": 0.0})
    _, teacher = distributions(model, turn, update)
    ids = [*segment.ids[: turn.at], *HINT, *segment.ids[turn.at : turn.stop]]
    routes = np.full((len(ids), *segment.routes.shape[1:]), NO_ROUTE, segment.routes.dtype)
    routes[: turn.at] = segment.routes[: turn.at]
    with torch.no_grad():
        tokens = torch.tensor(ids)[None]
        out = model(tokens, forced_experts=torch.from_numpy(routes)[None])
    expected = torch.log_softmax(out.logits[0], -1)[turn.start + len(HINT) - 1 : -1]
    assert len(expected) == turn.stop - turn.start and not teacher.requires_grad
    torch.testing.assert_close(logprobs(model, teacher).detach(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_the_gradient_is_that_of_the_formula(model, make, direction):
    rollouts = make.rollouts(model, 2)
    turns = [flagged(rollout.segments[0]) for rollout in rollouts]
    settings = FeedbackSettings(weight=0.7, direction=direction)
    figures = add_feedback(model, turns, 2, settings, UPDATE)
    got = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    loss = torch.zeros(())
    for turn in turns:
        student, teacher = (logprobs(model, hidden) for hidden in distributions(model, turn, UPDATE))
        teacher = teacher.detach()
        p, q = (student, teacher) if direction == "reverse" else (teacher, student)
        loss = loss + (p.exp() * (p - q)).sum(-1).mean()
    (0.7 * loss / 2).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(got[name], parameter.grad, atol=1e-6, rtol=1e-3, msg=name)
    assert figures["feedback_turns"] == 2.0 and figures["feedback_kl"] == pytest.approx(
        float(loss.detach()) / 2, rel=1e-4
    )


@given(st.integers(0, 50), st.integers(1, 9), st.sampled_from(["reverse", "forward"]))
def test_top_k_never_exceeds_the_whole_divergence_and_all_tokens_reach_it(seed, k, direction):
    torch.manual_seed(seed)
    student, teacher = torch.log_softmax(3 * torch.randn(2, 4, 8), -1)
    whole = divergences(student, teacher, FeedbackSettings(direction=direction))
    coarse = divergences(student, teacher, FeedbackSettings(direction=direction, top_k=k))
    assert (coarse <= whole + 1e-5).all() and (coarse >= -1e-5).all()
    if k >= 7:
        torch.testing.assert_close(coarse, whole)


@pytest.mark.parametrize("place", [{"at": 0}, {"at": 5, "start": 4}, {"stop": 99}, {"hint": ()}])
def test_a_turn_that_does_not_lie_in_its_segment_is_refused(make, place):
    segment = make.segment(make.model(), [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match="does not lie in a segment of 6 tokens"):
        FlaggedTurn(**{"segment": segment, "at": 3, "start": 4, "stop": 6, "hint": HINT, **place})


@pytest.fixture(scope="module")
def lesson():
    """Holds the taught model, which three tests begin with."""
    return {}


def taught(make):
    """A model that calls the wrong tool after PROMPT, the right one with the hint between, and its own after OTHER."""
    model = make.model(seed=2)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    rows = [
        [*PROMPT, ASSISTANT, WRONG, END],
        [*PROMPT, *HINT, ASSISTANT, RIGHT, END],
        [*OTHER, ASSISTANT, 20, END],
        [*OTHER, *HINT, ASSISTANT, 20, END],
    ]
    for _ in range(60):
        loss = torch.zeros(())
        for row in rows:
            ids = torch.tensor(row)[None]
            said = torch.log_softmax(model(ids).logits[0, :-1], -1)[-2:]
            loss = loss - said.gather(-1, ids[0, -2:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def at_turn(model, context):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([*context, ASSISTANT])[None]).logits[0, -1], -1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("settings", [{}, {"direction": "forward"}, {"top_k": 4}])
def test_after_some_steps_the_unknown_tool_is_called_less_and_other_turns_stay_as_they_were(make, lesson, settings):
    if not lesson:
        lesson["model"] = taught(make)
    model = copy.deepcopy(lesson["model"])
    wrong_turn = make.segment(model, [*PROMPT, ASSISTANT, WRONG, END], [0, 0, 0, 0, 0, 1, 1])
    other_turn = make.segment(model, [*OTHER, ASSISTANT, 20, END], [0, 0, 0, 0, 0, 1, 1])
    rollouts = [Rollout("a", "t", 0, [wrong_turn]), Rollout("b", "t", 0, [other_turn])]
    before, other_before = at_turn(model, PROMPT), at_turn(model, OTHER)
    assert before[WRONG].exp() > 0.8 and at_turn(model, [*PROMPT, *HINT])[RIGHT].exp() > 0.8
    trainer = PolicyTrainer(model, None, UPDATE)
    for _ in range(25):
        scores = trainer.score(rollouts)
        add_feedback(model, [flagged(wrong_turn)], 2, FeedbackSettings(weight=1.0, **settings), UPDATE)
        trainer.update(rollouts, [0.0, 0.0], scores)
    after, other_after = at_turn(model, PROMPT), at_turn(model, OTHER)
    assert after[WRONG].exp() < 0.3 < 0.5 < after[RIGHT].exp()
    assert (other_before.exp() * (other_before - other_after)).sum() < 0.05
