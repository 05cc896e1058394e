"""Drafters for tests: one that knows what comes and errs as often as it is set to, one that checks every guess of the draft layers."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.core.trace.completion import Completion
from etude.learn.engine.core import EngineCore
from etude.learn.engine.drafting import LayerDrafter
from etude.learn.engine.rows import StepBatch
from etude.learn.engine.sampling import sample
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.init import with_drafts
from etude.learn.model.mask import DocumentMask


class Foreseeing:
    """Guesses with the whole model, computed again from the rows' tokens; a guess is spoilt with probability `wrong`."""

    def __init__(self, wrong: float = 0.0) -> None:
        self._wrong = wrong
        self._generator = torch.Generator().manual_seed(0)
        self.core: EngineCore

    def _other_than(self, token: int, vocabulary: int) -> int:
        return (token + int(torch.randint(1, vocabulary, (1,), generator=self._generator))) % vocabulary

    @torch.inference_mode()
    def propose(self, batch: StepBatch, count: int) -> Tensor:
        rows, model = self.core.rows, self.core.model
        guesses = torch.zeros(len(batch), count, dtype=torch.long)
        for row, (slot, place) in enumerate(zip(batch.slots.tolist(), batch.places.tolist(), strict=True)):
            ids = rows.ids[rows.place(slot) : place].tolist()
            for depth in range(count):
                logits = model(torch.tensor([ids])).logits[:, -1]
                token = draw(logits, batch, row, rows.noise[place + depth])
                if float(torch.rand(1, generator=self._generator)) < self._wrong:
                    token = self._other_than(token, model.config.vocab_size)
                ids.append(token)
                guesses[row, depth] = token
        return guesses

    def keep(self, slot: int, length: int) -> None: ...

    def copy(self, source: int, target: int, length: int) -> None: ...

    def clear(self) -> None: ...


class Checked(LayerDrafter):
    """The draft layers' own drafter; each guess is compared with layers that read the whole session at once, without a cache."""

    checked = 0

    def propose(self, batch: StepBatch, count: int) -> Tensor:
        guesses = super().propose(batch, count)
        for row, (slot, place) in enumerate(zip(batch.slots.tolist(), batch.places.tolist(), strict=True)):
            ids = self._rows.ids[self._rows.place(slot) : place].tolist()
            for depth in range(guesses.shape[1]):
                logits = foretold(self._model, ids, guesses[row, :depth].tolist(), len(self._layers))
                assert draw(logits, batch, row, self._rows.noise[place + depth]) == int(guesses[row, depth])
                self.checked += 1
        return guesses


def draw(logits: Tensor, batch: StepBatch, row: int, noise: Tensor) -> int:
    """The token of one row of a batch from its logits (1, V)."""
    one = [None if x is None else x[row : row + 1] for x in (batch.temperature, batch.top_p)]
    return int(sample(logits, noise.view(1), *one)[0])


@torch.inference_mode()
def foretold(model: CausalLM, ids: list[int], guesses: list[int], layers: int) -> Tensor:
    """Draft logits (1, V) for the token after `ids` and `guesses`: a layer a guess, the last one going on from its own output."""
    trunk = model(torch.tensor([ids[:-1]])).hidden[0]  # (L, H): the last token is not forwarded yet
    tokens, hidden, inputs = ids + guesses, trunk, trunk
    for depth in range(len(guesses) + 1):
        layer = min(depth, layers - 1)
        if depth > layer:  # one position further: its stream is the layer's output at the position before
            inputs = torch.cat((inputs, hidden[-1:]))
        else:
            inputs = hidden
        embedded = model.embed(torch.tensor(tokens[1 + layer : 1 + layer + len(inputs)]))
        mask = DocumentMask.rows(1, len(inputs))
        hidden, _ = model.mtp[layer](inputs, embedded, model.rope.at(torch.arange(len(inputs))), mask)
    return model.head(hidden[-1:])


def speculating(model: CausalLM, settings: EngineSettings, wrong: float) -> EngineCore:
    """An engine whose drafts come from `Foreseeing`."""
    drafter = Foreseeing(wrong)
    drafter.core = EngineCore(model, settings, drafter=drafter)
    return drafter.core


def checking(model: CausalLM, settings: EngineSettings) -> tuple[EngineCore, Checked]:
    """An engine whose draft layers are checked guess by guess."""
    core = EngineCore(model, settings)
    assert core._speculation is not None
    drafter = core._speculation.drafter = Checked(model, core.cache, core.rows, settings.draft_tokens)
    return core, drafter


def drafted(model: CausalLM, layers: int, seed: int = 3) -> CausalLM:
    """`model` in float64 with untrained draft layers. In float64 the order of sums, which differs between batch shapes, moves
    no draw across a boundary."""
    return with_drafts(model, layers, seed).double().eval()


def same(one: Completion, other: Completion) -> bool:
    """Whether two completions agree in all that was sampled. How much of a prompt was found in a cache depends on who ended first, and
    with it from where on routes are reported: they are compared where both are.
    """
    a, b = one.tokens, other.tokens
    assert a is not None and b is not None and a.routes is not None and b.routes is not None
    both = min(len(a.routes), len(b.routes))
    if (a.ids, a.versions, one.finish) != (b.ids, b.versions, other.finish) or both < len(a.ids):
        return False
    close = torch.allclose(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-5)
    return close and bool((a.routes[-both:] == b.routes[-both:]).all())
