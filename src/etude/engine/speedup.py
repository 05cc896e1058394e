"""What the draft layers are worth: the same requests decoded plainly and speculatively, in turns, on the same core.

Time is this thread's, so other programs on the machine count little; the two take turns, so what remains hits both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from etude.engine.core import EngineCore
from etude.engine.settings import EngineSettings
from etude.model.causal_lm import CausalLM
from etude.policy.protocol import Request
from etude.trace.completion import Completion


@dataclass(frozen=True)
class Speedup:
    """Plain against speculative decoding with `draft_tokens` guesses, `batch` requests at a time.

    `acceptance` is the share of the guesses of each depth, from the first, that were kept. Seconds are medians over the repeats,
    of decoding alone (`ratio`) and with the prompts (`whole_ratio`), where neither has anything to gain.
    """

    batch: int
    draft_tokens: int
    requests: int
    tokens: int
    same: int  # requests that both answered with the same tokens
    acceptance: tuple[float, ...]
    tokens_per_step: float  # sampled by one forward of the model, for one request
    plain_tokens_per_s: float
    speculative_tokens_per_s: float
    ratio: float
    whole_ratio: float

    @property
    def identical(self) -> bool:
        """Whether every request got the same tokens. In fp32 about one token in 1e5 may fall to the other side of a boundary."""
        return self.same == self.requests

    def reading(self) -> dict[str, object]:
        """All of it for a JSON file."""
        return {**asdict(self), "identical": self.identical}


@dataclass(frozen=True)
class _Pass:
    answers: list[list[int]]
    decode_s: float
    whole_s: float
    stats: dict[str, float]


def measure(
    model: CausalLM,
    requests: Sequence[Request],
    settings: EngineSettings,
    *,
    batch: int = 1,
    repeats: int = 3,
    clock: Callable[[], float] = time.thread_time,
) -> Speedup:
    """Answers `requests` with `settings.draft_tokens` guesses and without, `repeats` times each.

    Each request should have a session id of its own and a seed. Raises ValueError if there are none, or no draft layers.
    """
    if not requests or not settings.draft_tokens:
        raise ValueError(
            f"{len(requests)} requests and draft_tokens={settings.draft_tokens}: nothing to compare, give some of both"
        )
    common = {"max_slots": max(batch, settings.max_slots), "max_batch": batch, "draft_max_batch": batch}
    drafting = settings.model_copy(update=common)
    plainly = settings.model_copy(update=common | {"draft_tokens": 0})
    passes: dict[str, list[_Pass]] = {"plain": [], "drafted": []}
    for _ in range(repeats):
        passes["plain"].append(_run(model, requests, plainly, clock))
        passes["drafted"].append(_run(model, requests, drafting, clock))
    plain, drafted = passes["plain"], passes["drafted"]
    decode_s, drafted_s = _median(plain, lambda p: p.decode_s), _median(drafted, lambda p: p.decode_s)
    tokens = sum(len(answer) for answer in plain[0].answers)
    decoded = tokens - len(requests)  # the first token of an answer belongs to the prompt's forward
    stats = drafted[0].stats
    return Speedup(
        batch=batch,
        draft_tokens=settings.draft_tokens,
        requests=len(requests),
        tokens=tokens,
        same=sum(a == b for a, b in zip(plain[0].answers, drafted[0].answers, strict=True)),
        acceptance=tuple(stats[key] for key in sorted(stats) if key.startswith("acceptance_")),
        tokens_per_step=decoded / stats["decode_rows"],
        plain_tokens_per_s=decoded / decode_s,
        speculative_tokens_per_s=decoded / drafted_s,
        ratio=decode_s / drafted_s,
        whole_ratio=_median(plain, lambda p: p.whole_s) / _median(drafted, lambda p: p.whole_s),
    )


def _run(model: CausalLM, requests: Sequence[Request], settings: EngineSettings, clock: Callable[[], float]) -> _Pass:
    core = EngineCore(model, settings, clock=clock)
    tickets = [core.submit(request) for request in requests]
    done: dict[int, Completion] = {}
    start = clock()
    while core.busy:
        done.update(core.step())
    whole_s = clock() - start
    answers = []
    for ticket in tickets:
        tokens = done[ticket].tokens
        assert tokens is not None
        answers.append(tokens.ids)
    return _Pass(answers, core.stats.decode_s, whole_s, core.stats.reading())


def _median(passes: list[_Pass], seconds: Callable[[_Pass], float]) -> float:
    return statistics.median(seconds(one) for one in passes)
