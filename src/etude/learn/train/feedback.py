"""Targeted feedback: a flagged turn is pulled towards what the same weights would say of it with a hint before it (Composer 2 technical report).

No second rollout: the turn's own tokens y are scored twice under the current weights, with the hint in the context (teacher, no
gradient) and without it (student). Over the turn's T positions, and no others,

    L = weight / rollouts * sum over flagged turns of 1/T sum_t D_t      D_t = KL(p(.|c, y<t) || stopgrad p(.|c, hint, y<t))

which is the reverse KL of SDPO (arXiv 2601.20802); `forward` is that of OPSD (arXiv 2601.18734). Which of them Composer 2.5 uses is
not disclosed. With `top_k` the k tokens that the teacher likes best are kept apart and the rest counts as one: never more than the
whole divergence.

Call it between `PolicyTrainer.score` and `update`: it adds to the same gradient, so one clip and one optimizer step serve both.
Without weight or flagged turns it touches nothing, and the step is bit for bit that without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from etude.core.trace.segment import Segment, no_route, wide_routes
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.feedback_settings import FeedbackSettings
from etude.learn.train.losses import chunk_positions
from etude.learn.train.replay import replaying
from etude.learn.train.settings import PolicyStepSettings


@dataclass(frozen=True)
class FlaggedTurn:
    """One turn of a segment: its sampled tokens are ids[start:stop]; the hint's tokens belong before position `at` <= start, in
    front of the generation prompt."""

    segment: Segment
    at: int
    start: int
    stop: int
    hint: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < self.at <= self.start < self.stop <= len(self.segment) or not self.hint:
            raise ValueError(
                f"a flagged turn at {self.start}..{self.stop} with {len(self.hint)} hint tokens before {self.at} does not lie in a "
                f"segment of {len(self.segment)} tokens"
            )


def add_feedback(
    model: CausalLM,
    flagged: Sequence[FlaggedTurn],
    rollouts: int,
    settings: FeedbackSettings,
    update: PolicyStepSettings,
) -> dict[str, float]:
    """Add the loss's gradient to that of `model`; returns figures. `rollouts`: of the whole batch, flagged or not."""
    if not settings.weight or not flagged:
        return {}
    total, moved = 0.0, 0.0
    for turn in flagged:
        student, teacher = distributions(model, turn, update)
        mean, turn_moved = _backward(
            student, teacher, turn, model, settings, update.temperature, settings.weight / rollouts
        )
        total, moved = total + mean, moved + turn_moved
    count = len(flagged)
    return {"feedback_turns": float(count), "feedback_kl": total / count, "feedback_dlogp": moved / count}


def feedback_of_all(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The figures of several ranks' turns as those of all turns; empty if no rank had one."""
    turns = sum(part.get("feedback_turns", 0.0) for part in parts)
    if not turns:
        return {}
    mean = lambda name: sum(part[name] * part["feedback_turns"] for part in parts if part) / turns
    return {"feedback_turns": turns, "feedback_kl": mean("feedback_kl"), "feedback_dlogp": mean("feedback_dlogp")}


def distributions(model: CausalLM, turn: FlaggedTurn, update: PolicyStepSettings) -> tuple[Tensor, Tensor]:
    """Hidden states (T, H) that predict the turn's tokens, without the hint (with graph) and with it (without).

    The student takes the experts that were recorded, as the policy loss does. The teacher takes them up to the hint; behind it the
    context is another, and the router decides.
    """
    segment, count = turn.segment, turn.stop - turn.start
    ids = segment.ids[: turn.stop - 1]
    hinted = np.concatenate((ids[: turn.at], np.array(turn.hint, ids.dtype), ids[turn.at :]))
    student_routes = teacher_routes = None
    if segment.routes is not None and update.router_replay is not False:
        student_routes = segment.routes[: turn.stop - 1]
        teacher_routes = np.full(
            (len(hinted), *student_routes.shape[1:]), no_route(student_routes.dtype), student_routes.dtype
        )
        teacher_routes[: turn.at] = student_routes[: turn.at]
    with replaying(model, update.replay_ratio):
        with torch.no_grad():
            teacher = _hidden(model, hinted, teacher_routes)[-count:]
        student = _hidden(model, ids, student_routes)[-count:]
    return student, teacher


def _hidden(model: CausalLM, ids: np.ndarray, routes: np.ndarray | None) -> Tensor:
    """(T, H) of one sequence."""
    device = model.embed.weight.device
    tokens = torch.from_numpy(ids.astype(np.int64))[None].to(device)
    forced = None if routes is None else torch.from_numpy(np.ascontiguousarray(wide_routes(routes)))[None].to(device)
    out = model(tokens, forced_experts=forced, logits_at=torch.zeros_like(tokens, dtype=torch.bool))
    return out.hidden[0]


def _backward(
    student: Tensor,
    teacher: Tensor,
    turn: FlaggedTurn,
    model: CausalLM,
    settings: FeedbackSettings,
    temperature: float,
    scale: float,
) -> tuple[float, float]:
    """The mean divergence, and the mean of log p with hint minus without over the turn's tokens. Logits exist for a chunk at a time."""
    targets = torch.from_numpy(turn.segment.ids[turn.start : turn.stop].astype(np.int64)).to(student.device)
    leaf = student.detach().requires_grad_()
    count = len(targets)
    total, moved = 0.0, 0.0
    size = chunk_positions(teacher, model.head)
    for first in range(0, count, size):
        part = slice(first, first + size)
        with torch.no_grad():
            with_hint = torch.log_softmax(model.head(teacher[part]).float() / temperature, -1)  # (N, V)
        without = torch.log_softmax(model.head(leaf[part]).float() / temperature, -1)
        loss = divergences(without, with_hint, settings).sum() / count
        (scale * loss).backward()
        total += float(loss.detach())
        gaps = (with_hint - without.detach()).gather(-1, targets[part, None])
        moved += float(gaps.sum()) / count
    assert leaf.grad is not None
    student.backward(leaf.grad)
    return total, moved


def divergences(student: Tensor, teacher: Tensor, settings: FeedbackSettings) -> Tensor:
    """(N,) KL in nats at each position, in the direction of the settings. Both are log-probabilities (N, V)."""
    if 0 < settings.top_k < teacher.size(-1) - 1:
        best = teacher.topk(settings.top_k, -1).indices
        student, teacher = _coarse(student, best), _coarse(teacher, best)
    first, second = (student, teacher) if settings.direction == "reverse" else (teacher, student)
    return (first.exp() * (first - second)).sum(-1)


def _coarse(logprobs: Tensor, kept: Tensor) -> Tensor:
    """(N, k + 1): the kept tokens' log-probabilities, and that of all others together."""
    rest = logprobs.scatter(-1, kept, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat((logprobs.gather(-1, kept), rest), -1)
