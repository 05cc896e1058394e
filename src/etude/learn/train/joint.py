"""Draft layers trained together with next-token prediction, in the stages after their own: one forward of the trunk serves both."""

from __future__ import annotations

import zlib

from torch import Tensor

from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import TrainBatch
from etude.learn.train.next_token import NextToken
from etude.learn.train.self_distillation import DraftLearner


class JointLearner(NextToken):
    """On one batch in `every` the draft layers learn too. The trunk ends bit for bit where it would without them.

    Which batches these are follows from their tokens: a resumed run takes the same ones without keeping count.
    """

    def __init__(self, model: CausalLM, router_bias_rate: float, every: int) -> None:
        super().__init__(model, router_bias_rate)
        self.drafts = DraftLearner(model, router_bias_rate)
        self.every = every
        self._drafted = False

    def loss(self, batch: TrainBatch) -> Tensor:
        """The value is that of the next-token loss alone, by which the loop reports and judges; the graph holds both."""
        out = self.forward(batch)
        main = self.cross_entropy(out, batch)
        self._drafted = zlib.crc32(batch.ids.cpu().numpy().tobytes()) % self.every == 0
        if not self._drafted:
            return main
        draft = self.drafts.distil(out.hidden, batch)
        return main + (
            draft - draft.detach()
        )  # adds 0, or NaN if the draft's loss is not finite: then the step is skipped

    def accepted(self) -> dict[str, float]:
        drafts = self.drafts.accepted() if self._drafted else self.drafts.figures
        return super().accepted() | drafts


def learner_of(model: CausalLM, router_bias_rate: float, draft_every: int) -> NextToken:
    """The objective for `model` in a stage of next-token prediction: with draft layers they are trained at the same time."""
    if model.config.mtp_layers:
        return JointLearner(model, router_bias_rate, draft_every)
    return NextToken(model, router_bias_rate)
