"""What draft layers learn: the distribution that the trunk's own head gives for the same token (Composer 2 report, section 3.1).

Depth d at position i predicts token i + d + 1 and has seen the tokens up to i + d. The teacher is the main head at position i + d,
which has seen the same tokens: its full distribution, without gradient. The loss is KL(teacher || draft) over the whole vocabulary,
weighed as the token itself is in the batch, averaged over depths. No target lies in another document, or past its end.

The report does not say whether drafts teach the trunk when they train together (DeepSeek-V3's do, by one-hot targets). Here they never
do: hidden states, embedding and head enter without gradient. A teacher that learns from its pupil could come closer to it by becoming
duller; and so a run with drafts has bit for bit the trunk of a run without, on which all other figures rest. It also
makes a loss weight meaningless: draft layers have gradients, clipping and optimizer state of their own.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from etude.core.events.log import EventLog
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.linear import linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.mtp import MtpLayer
from etude.learn.model.router import Router, balanced_bias, expert_load
from etude.learn.parallel.shared_training import ALONE, SharedTraining
from etude.learn.train.batch import BatchSource, TrainBatch
from etude.learn.train.loop import TrainingResult
from etude.learn.train.losses import divergence
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.stage import train_stage

STAGE = "mtp"


def draft_layers(model: CausalLM) -> list[MtpLayer]:
    """Depth 1 first. Raises ValueError if the model has none."""
    if not model.config.mtp_layers:
        raise ValueError(
            "the model has no draft layers; add some (with_drafts), or load its checkpoint with drafts=True"
        )
    return [layer for layer in model.mtp if isinstance(layer, MtpLayer)]


def draft_weights(weights: Tensor, mask: DocumentMask, depth: int) -> Tensor:
    """(B, T) loss weight of what depth `depth` predicts at each place: that of token i + depth + 1, 0 if it is of another document.

    `weights` (B, T) are a batch's, `mask` its documents.
    """
    steps, positions = depth + 1, mask.positions.to(weights.device)
    same = (
        mask.ahead(positions, steps) == positions + steps
    )  # past the end of a document or row, places no longer match
    return mask.ahead(weights, steps) * same


def draft_states(
    model: CausalLM, hidden: Tensor, ids: Tensor, mask: DocumentMask
) -> list[tuple[Tensor, Tensor | None]]:
    """For each depth the hidden states (B, T, H) that go to the head, and the experts chosen (B * T, K), None in a dense model.

    `hidden` (B, T, H) is the trunk's, as the forward of `ids` (B, T) left it; no gradient goes back into it.
    """
    turns = model.rope.at(mask.positions.flatten().to(ids.device))
    state, states = hidden.detach().flatten(0, 1), []
    for depth, layer in enumerate(draft_layers(model), 1):
        embedded = model.embed(mask.ahead(ids, depth)).detach().flatten(0, 1)
        state, experts = layer(state, embedded, turns, mask)
        states.append((state.view(hidden.shape), experts))
    return states


class DraftLearner:
    """The distillation loss of one model's draft layers, and the balance of their routers after each step."""

    def __init__(self, model: CausalLM, router_bias_rate: float) -> None:
        self.model = model
        self.rate = router_bias_rate
        self._routers = [
            module for layer in draft_layers(model) for module in layer.modules() if isinstance(module, Router)
        ]
        self.loads: list[Tensor] = []  # (1, E) of the last batch, one a depth with experts
        self._loss: float | None = None
        self.shared: SharedTraining = ALONE

    def share(self, shared: SharedTraining) -> None:
        """The model is trained by several ranks from now on."""
        self.shared = shared

    def loss(self, batch: TrainBatch) -> Tensor:
        """Scalar with its graph, on a trunk that stays as it is."""
        with torch.no_grad():
            out = self.model(batch.ids, batch.mask(), logits_at=torch.zeros_like(batch.real))
        return self.distil(out.hidden, batch)

    def distil(self, hidden: Tensor, batch: TrainBatch) -> Tensor:
        """The same after a forward of the trunk that another loss needed too: `hidden` (B, T, H) is its output."""
        mask = batch.mask()
        teacher = hidden.detach()
        losses, self.loads = [], []
        for depth, (states, experts) in enumerate(draft_states(self.model, hidden, batch.ids, mask), 1):
            weights = draft_weights(batch.weights, mask, depth)
            at = weights > 0
            kl = divergence(states[at], mask.ahead(teacher, depth)[at], self._head)
            total = self.shared.total(weights.sum()).clamp(min=1e-9)  # 0 where a batch has no target
            losses.append((weights[at] * kl).sum() / total)
            if experts is not None:
                self.loads.append(expert_load(experts.unsqueeze(1)[batch.real.flatten()], self.model.config.experts))
        loss = torch.stack(losses).mean()
        self._loss = float(self.shared.total(loss.detach()))
        return loss

    @torch.no_grad()
    def after_step(self) -> dict[str, float]:
        """Moves the selection biases towards balance; returns the loss of the last batch (nats) and its busiest expert."""
        self.loads = [self.shared.total(load) for load in self.loads]
        for router, load in zip(self._routers, self.loads, strict=True):
            if router.bias is not None and self.rate:
                router.bias.copy_(balanced_bias(router.bias, load[0], self.rate))
        return self.figures

    @property
    def figures(self) -> dict[str, float]:
        """Of the last batch the draft layers saw; empty before the first."""
        if self._loss is None:
            return {}
        busiest = {"draft_load_max": max(float(load.max() / load.mean()) for load in self.loads)} if self.loads else {}
        return {"draft_loss": self._loss} | busiest

    @property
    def routed_depths(self) -> int:
        """How many draft layers have experts."""
        return len(self._routers)

    def _head(self, hidden: Tensor) -> Tensor:
        """The shared head, which drafts do not teach."""
        return linear(hidden, self.model.head.weight.detach())


def run_mtp(settings: MtpSettings, model: CausalLM, source: BatchSource, out: Path, log: EventLog) -> TrainingResult:
    """Trains the draft layers of `model` in place; resumes from `out`. Raises ValueError if it has none.

    The trunk is no part of the optimizer and runs without a graph. Batches are those of pretraining.
    """
    learner = DraftLearner(model, settings.router_bias_rate)
    return train_stage(STAGE, STAGE, settings, model, model.mtp, source, learner, out, log)
