"""Next-token prediction: what the base stage and SFT share. The head runs only where a token has weight."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.learn.model.causal_lm import CausalLM, ModelOutput
from etude.learn.model.router import Router, balanced_bias, expert_load
from etude.learn.parallel.shared_training import ALONE, SharedTraining
from etude.learn.train.batch import TrainBatch
from etude.learn.train.losses import weighted_cross_entropy


def routers(model: CausalLM) -> list[Router]:
    """The trunk's routers in the order of route arrays."""
    return model.routers()


class NextToken:
    """Weighted cross entropy of one model, and the balance of its routers (arXiv 2408.15664) after each step."""

    def __init__(self, model: CausalLM, router_bias_rate: float) -> None:
        self.model = model
        self.shared: SharedTraining = ALONE
        self.rate = router_bias_rate
        self._routers = routers(model)
        self._load: Tensor | None = None  # (L_moe, E) of the last batch

    def share(self, shared: SharedTraining) -> None:
        """The model is trained by several ranks from now on."""
        self.shared = shared

    def loss(self, batch: TrainBatch) -> Tensor:
        """Scalar with its graph."""
        return self.cross_entropy(self.forward(batch), batch)

    def forward(self, batch: TrainBatch) -> ModelOutput:
        """The trunk over a batch, without logits."""
        nowhere = torch.zeros_like(batch.real)  # the head runs in the loss, in chunks
        out = self.model(batch.ids, batch.mask(), return_routes=bool(self._routers), logits_at=nowhere)
        if out.routes is not None and self._routers:
            self._load = expert_load(out.routes[batch.real], self.model.config.experts)
        return out

    def cross_entropy(self, out: ModelOutput, batch: TrainBatch) -> Tensor:
        """The loss at the tokens that have a weight."""
        return weighted_cross_entropy(*batch.predictions(out.hidden), self.model.head, batch.whole_weight)

    @torch.no_grad()
    def after_step(self) -> dict[str, float]:
        """Moves the selection biases towards balance; returns how far the busiest expert is above the mean load."""
        if self._load is None:
            return {}
        loads = self.shared.total(self._load)
        for router, load in zip(self._routers, loads, strict=True):
            if router.bias is not None and self.rate:
                router.bias.copy_(balanced_bias(router.bias, load, self.rate))
        busiest = loads.max(-1).values / loads.mean(-1)  # (L_moe,)
        return {"load_max": float(busiest.max())}
