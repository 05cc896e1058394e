"""Drafters that need no draft layers: one that knows what comes, one that doesn't, and anything between."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.engine.core import EngineCore
from etude.engine.rows import Batch
from etude.engine.sampling import sample
from etude.engine.settings import EngineSettings
from etude.model.causal_lm import CausalLM
from etude.model.init import with_drafts


class Foreseeing:
    """Guesses with the whole model, computed anew from the rows' tokens; each guess is spoilt with probability `wrong`."""

    def __init__(self, wrong: float = 0.0) -> None:
        self._wrong = wrong
        self._generator = torch.Generator().manual_seed(0)
        self.core: EngineCore

    @torch.inference_mode()
    def propose(self, batch: Batch, count: int) -> Tensor:
        rows, model = self.core.rows, self.core.model
        drafts = torch.zeros(len(batch), count, dtype=torch.long)
        for row, (slot, place) in enumerate(zip(batch.slots.tolist(), batch.places.tolist(), strict=True)):
            ids = rows.ids[rows.place(slot) : place].tolist()
            for depth in range(count):
                logits = model(torch.tensor([ids])).logits[:, -1]
                one = [None if x is None else x[row : row + 1] for x in (batch.temperature, batch.top_p)]
                token = int(sample(logits, rows.noise[place + depth].view(1), *one)[0])
                if float(torch.rand(1, generator=self._generator)) < self._wrong:
                    token = int(torch.randint(model.config.vocab_size, (1,), generator=self._generator))
                ids.append(token)
                drafts[row, depth] = token
        return drafts

    def keep(self, slot: int, length: int) -> None: ...

    def copy(self, source: int, target: int, length: int) -> None: ...

    def clear(self) -> None: ...


def speculating(model: CausalLM, settings: EngineSettings, drafter: Foreseeing) -> EngineCore:
    """An engine that takes its drafts from `drafter`."""
    core = EngineCore(model, settings, drafter=drafter)
    drafter.core = core
    return core


def drafted(model: CausalLM, layers: int, seed: int = 3) -> CausalLM:
    """`model` in float64 with untrained draft layers. In float64 the order of sums, which differs between batch shapes, moves
    no draw across a boundary."""
    return with_drafts(model, layers, seed).double().eval()
