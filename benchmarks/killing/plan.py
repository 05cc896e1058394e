"""Who is to be killed when: drawn from a seed before the run begins."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from killing.points import OWNER

# Of 210. Sandboxes and commands cost an attempt, actors some seconds, a controller or Ray itself a whole start.
SHARES = {
    "sandbox": 53,
    "command": 34,
    "engine": 36,
    "trainer": 36,
    "zygote": 14,
    "index": 12,
    "controller": 18,
    "raylet": 4,
    "gcs": 3,
}
IN_A_WINDOW = 0.5  # of the kills of a process that has windows
DELAY_S = 0.5  # mean of the random wait before a kill


@dataclass(frozen=True)
class Kill:
    """After `step` steps are trained and `delay_s` more, a process of this kind, in `point` where one is named."""

    number: int
    step: int
    delay_s: float
    kind: str
    point: str | None


def plan(seed: int, kills: int, steps: int, shares: Mapping[str, int] = SHARES) -> list[Kill]:
    """In order of steps. Every kind at least once where there are kills enough; none so late that the run may be over."""
    rng = random.Random(seed)
    kinds = [kind for kind in shares]
    kinds += rng.choices(list(shares), weights=list(shares.values()), k=max(0, kills - len(kinds)))
    kinds = kinds[:kills]
    rng.shuffle(kinds)
    last = max(1, steps - 2)
    at = sorted(rng.randrange(last) for _ in kinds)
    decks: dict[str, list[str]] = {}
    return [
        Kill(number, step, rng.expovariate(1 / DELAY_S), kind, _point(rng, kind, decks))
        for number, (step, kind) in enumerate(zip(at, kinds, strict=True))
    ]


def _point(rng: random.Random, kind: str, decks: dict[str, list[str]]) -> str | None:
    """One of the kind's windows, all of them before any again."""
    names = sorted(name for name, owner in OWNER.items() if owner == kind)
    if not names or rng.random() >= IN_A_WINDOW:
        return None
    if not decks.get(kind):
        decks[kind] = rng.sample(names, len(names))
    return decks[kind].pop()
