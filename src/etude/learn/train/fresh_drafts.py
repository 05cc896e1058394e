"""Draft layers that keep up with a trunk in RL: without lessons they guess for a policy that is no more, and acceptance falls.

After a policy step they learn what the new trunk says of the step's own tokens (`self_distillation`: its distribution, at the sampled
tokens, where a sampler drafts). The report does not say whether MTP layers are updated during RL (Composer 2 technical report). The trunk
runs without a graph, and gradients, clipping and optimizer are the drafts' own: its weights are bit for bit those of a run without them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from etude.core.trace.segment import Rollout, Segment
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.count import ComputeCost
from etude.learn.train.acceptance import measure_acceptance
from etude.learn.train.balance import dealt, rows_to_train
from etude.learn.train.batch import TrainBatch, like_lengths, padded_batch
from etude.learn.train.mtp_settings import FreshDraftsSettings
from etude.learn.train.optimizer import build_optimizers
from etude.learn.train.ranks import ALONE, Ranks, sum_gradients
from etude.learn.train.self_distillation import DraftLearner
from etude.learn.train.settings import PolicyStepSettings

# By this rule the engine accepts (see `acceptance`).
RULE = "coupled"


class FreshDrafts:
    """Teaches the draft layers of `model`, in place. Raises ValueError if it has none. Each rank runs its share of the rows."""

    def __init__(
        self, model: CausalLM, settings: FreshDraftsSettings, update: PolicyStepSettings, ranks: Ranks = ALONE
    ) -> None:
        self.model, self.settings, self.ranks = model, settings, ranks
        self._batch_tokens, self._temperature = update.step_tokens[0], update.temperature
        self._learner = DraftLearner(model, settings.router_bias_rate)
        self._optimizers = build_optimizers(model.mtp, settings.optimizer)
        self._cost = ComputeCost.of_model(model.config)
        self._device = model.embed.weight.device

    def after(self, steps: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """The lesson that is due after this many policy steps, if one is; its figures are the same on all ranks.

        `draft_acceptance_<depth>` is that of drafts that have not seen these tokens yet, under the trunk's new weights;
        `_taught` behind it, that after the lesson.
        """
        if steps % self.settings.every or not rows_to_train(rollouts):
            return {}
        before = self._acceptance(rollouts)
        figures: dict[str, float] = {}
        for _ in range(self.settings.passes):
            figures = self._learn(rollouts)
        taught = {f"{name}_taught": value for name, value in self._acceptance(rollouts).items()}
        return self.ranks.gather(figures | before | taught)[0]

    def state_dict(self) -> list[dict[str, Any]]:
        """Of the optimizer; the layers themselves are in the model's."""
        return self._optimizers.state_dict()

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        self._optimizers.load_state_dict(state)

    def _learn(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """One optimizer step on all rows of all ranks, each sampled token with the same weight."""
        segments = [rollouts[r].segments[s] for r, s in rows_to_train(rollouts)]
        whole = float(sum(int(segment.sampled[1:].sum()) for segment in segments))
        loads = [torch.zeros(1, self.model.config.experts) for _ in range(self._learner.routed_depths)]
        total = 0.0
        for batch in self._batches(rollouts):
            # A batch's loss is a mean over its own weights.
            part = self._learner.loss(batch) * (float(batch.weights.sum()) / whole)
            part.backward()
            total += float(part.detach())
            loads = [load + more.cpu() for load, more in zip(loads, self._learner.loads, strict=True)]
        sum_gradients(self._optimizers.params, self.ranks)
        heard = self.ranks.gather({"loss": total, "loads": loads})
        norm = self._optimizers.clip()
        if math.isfinite(norm):
            self._optimizers.step()
            self._learner.loads = [
                torch.stack(depth).sum(0).to(self._device) for depth in zip(*(h["loads"] for h in heard), strict=True)
            ]
            self._learner.after_step()
        self._optimizers.zero_grad()
        return {"draft_loss": sum(h["loss"] for h in heard), "draft_skipped": float(not math.isfinite(norm))}

    def _batches(self, rollouts: Sequence[Rollout]) -> list[TrainBatch]:
        """This rank's rows, those of like length together."""
        share = dealt(rollouts, self._cost, self.ranks.size).rows[self.ranks.rank]
        segments = [rollouts[r].segments[s] for r, s in share]
        chosen = like_lengths([len(segment) for segment in segments], self._batch_tokens)
        return [
            padded_batch([segments[n].ids for n in numbers], [_weights(segments[n]) for n in numbers]).to(self._device)
            for numbers in chosen
        ]

    def _acceptance(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """By depth, on the batch's first rows; on rank 0, for it is little work. Empty where they hold no draft of every depth."""
        if self.ranks.rank or not self.settings.measured_tokens:
            return {}
        texts: list[tuple[np.ndarray, np.ndarray]] = []
        tokens = 0
        for r, s in rows_to_train(rollouts):
            segment = rollouts[r].segments[s]
            if tokens + len(segment) > self.settings.measured_tokens and texts:
                break
            texts.append((segment.ids, _weights(segment)))
            tokens += len(segment)
        depths = self.model.config.mtp_layers
        if not any(weights[depths + 1 :].any() for _, weights in texts):
            return {}
        found = measure_acceptance(self.model, texts, self._temperature)
        return {f"draft_acceptance_{one.depth}": one.rates[RULE] for one in found}


def _weights(segment: Segment) -> np.ndarray:
    """(T,) 1 at sampled tokens that have a context."""
    return np.concatenate(([0.0], segment.sampled[1:])).astype(np.float32)
