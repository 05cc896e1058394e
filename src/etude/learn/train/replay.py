"""Router replay with the plausibility filter (Composer 2 report 4.1; R3, arXiv 2510.11370).

The trainer's forward visits the experts the engine visited, so that its logprobs are those of the sampler. A replayed
expert is kept only if the live router finds it plausible: its score is at least `ratio` times the weakest score among the
router's own top-k for that token; otherwise the router's own best fill the slot. ratio 0 is pure replay.
Weights come from live scores either way, so gradients flow through the router.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.router import Router
from etude.learn.train.next_token import routers


@dataclass
class ReplayCounts:
    """Over tokens x MoE layers x chosen experts. `agreed` would have been the router's own choice as well."""

    replayed: int = 0
    replaced: int = 0
    agreed: int = 0

    @property
    def agreement(self) -> float:
        """Share of replayed expert ids that the live router chooses too (nan if nothing was replayed)."""
        return self.agreed / self.replayed if self.replayed else float("nan")


Choose = Callable[[Tensor, Tensor | None], Tensor]


def filtered_choice(choose: Choose, ratio: float, counts: ReplayCounts) -> Choose:
    """A router's `choose` (scores (N, E), forced (N, K) or None -> experts (N, K)) behind the plausibility filter."""

    def filtered(scores: Tensor, forced: Tensor | None) -> Tensor:
        if forced is None:
            return choose(scores, None)
        own = choose(scores, None)  # (N, K)
        experts = forced.long()
        given = (experts >= 0) & (experts < scores.shape[-1])  # any other number means that there is no route
        experts = experts.masked_fill(~given, 0)
        floor = ratio * scores.gather(1, own).amin(-1, keepdim=True)  # (N, 1)
        kept = given & (scores.gather(1, experts) >= floor)
        chosen_too = (experts.unsqueeze(2) == own.unsqueeze(1)).any(2) & given
        replayed, survived, agreed = torch.stack((given.sum(), kept.sum(), chosen_too.sum())).tolist()
        counts.replayed += replayed
        counts.replaced += replayed - survived
        counts.agreed += agreed
        return choose(scores, experts.masked_fill(~kept, -1))

    return filtered


@contextmanager
def replaying(model: CausalLM, ratio: float) -> Iterator[ReplayCounts]:
    """Within the block, `forced_experts` pass the filter in every router of `model`, and are counted."""
    counts = ReplayCounts()
    held: list[Router] = routers(model)
    for router in held:
        router.choose = filtered_choice(router.choose, ratio, counts)  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        for router in held:
            del router.choose  # the method of the class shows again
