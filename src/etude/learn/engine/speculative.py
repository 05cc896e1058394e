"""Speculative decoding: several tokens from one forward of the model, and exactly those of plain decoding.

A drafter guesses the next k tokens of every row; one call of the model gives the logits at all of them. At each position the
token is drawn as plain decoding draws it, by the inverse of the cumulative distribution at the request's own random number
(`sampling`). As long as the guess is that token, the logits after it were computed behind the right tokens, so the next draw
counts too; the first that differs is kept and ends the run. So tokens, logprobs, routes and versions are those of plain
decoding, greedy or sampled, up to the last bits in which logits differ between batch shapes: not only equally distributed,
as rejection sampling is (Leviathan et al. 2023, arXiv 2211.17192), but the same, which makes a rollout reproducible
whether or not drafts were used.

What that costs: rejection sampling keeps a guess with probability 1 - TV(p, q), the most that any scheme can. Two draws by one
number agree where the tokens' intervals [P(v - 1), P(v)) and [Q(v - 1), Q(v)) overlap, P and Q the cumulative distributions: never
more often, and at least with probability 1 - sum over v of |P(v) - Q(v)|. Greedy decoding keeps the same guesses either way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from etude.learn.engine.drafting import Drafter
from etude.learn.engine.forward import Forward
from etude.learn.engine.rows import StepBatch
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.stats import EngineStats


class Speculation:
    """Decode steps of up to `draft_tokens` + 1 tokens a row. Keeps nothing between steps but what the drafter keeps."""

    def __init__(self, forward: Forward, drafter: Drafter, settings: EngineSettings, stats: EngineStats) -> None:
        self.drafter = drafter
        self._forward, self._settings, self._stats = forward, settings, stats
        self._tainted: set[int] = getattr(drafter, "tainted", set())

    def renew(self) -> None:
        """The model has other weights."""
        renew = getattr(self.drafter, "renew", None)
        if renew is not None:
            renew()

    def count(self, batch: StepBatch) -> int:
        """Tokens to guess in the next step: none for a large batch, nor where a request may sample only one more, nor in a batch with a
        session that the drafter has no finite guess for."""
        if self._tainted and not self._tainted.isdisjoint(batch.slots.tolist()):
            return 0
        if len(batch) > self._settings.draft_max_batch:
            return 0
        return min(self._settings.draft_tokens, int((batch.end - batch.places).min()))

    def decode(self, batch: StepBatch, count: int, version: int) -> tuple[Tensor, int]:
        """One to `count` + 1 tokens for every row, as `Forward.decode` would give them one by one.

        Which rows are done (B,) bool, and how many tokens were sampled in all.
        """
        drafts = self.drafter.propose(batch, count)  # (B, k)
        held = self._forward.cache.lengths[batch.slots]  # (B,)
        tokens, bad = self._forward.verify(batch, drafts, version)  # (B, k + 1)
        taken, over = self._take(batch, drafts.tolist(), tokens.tolist())
        self._forward.broken = frozenset()
        if bool(bad.any()):
            self._stop_at(batch.slots.tolist(), bad.tolist(), held.tolist(), taken, over)
        steps = torch.tensor(taken)
        self._forward.cache.cut(batch.slots, held + steps)
        batch.last = tokens.gather(1, (steps - 1).unsqueeze(1)).squeeze(1)
        batch.places = batch.places + steps
        return torch.tensor(over), sum(taken)

    def _stop_at(
        self, slots: list[int], bad: list[list[bool]], held: list[int], taken: list[int], over: list[bool]
    ) -> None:
        """A row ends with its first token that came from logits that are not finite. Behind a wrong guess they are of no account, and go."""
        broken: list[int] = []
        for row, slot in enumerate(slots):
            first = bad[row].index(True) if True in bad[row] else len(bad[row])
            if first < taken[row]:
                taken[row], over[row] = first + 1, True
                broken.append(slot)
            elif True in bad[row]:
                self._forward.wipe(slot, held[row] + taken[row])
        self._forward.broken = frozenset(broken)

    def _take(self, batch: StepBatch, drafts: list[list[int]], tokens: list[list[int]]) -> tuple[list[int], list[bool]]:
        """How many tokens each row keeps, and whether it is done with them."""
        taken, over = [], []
        left = (batch.end - batch.places + 1).tolist()
        for guessed, drawn, stops, room in zip(drafts, tokens, batch.stops.tolist(), left, strict=True):
            kept, agreed = run(guessed, drawn, stops)
            stopped = drawn[kept - 1] in stops
            # Guesses beyond the end of an answer tell nothing about the drafts.
            self._stats.record_verification(min(kept, len(guessed)) if stopped else len(guessed), agreed)
            taken.append(kept)
            over.append(stopped or kept == room)
        self._stats.verify_calls += 1
        return taken, over


def run(guessed: list[int], drawn: list[int], stops: list[int]) -> tuple[int, int]:
    """How many of the `drawn` tokens plain decoding would have sampled, at least one, and how many guesses were right.

    `drawn` has one token more than `guessed`; a token counts if all guesses before it were right and none before it stops.
    """
    for n, token in enumerate(drawn):
        right = n < len(guessed) and guessed[n] == token
        if token in stops or not right:
            return n + 1, n + right
    raise AssertionError("the last drawn token has no guess")
