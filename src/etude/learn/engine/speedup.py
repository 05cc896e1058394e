"""What the draft layers are worth: the same requests decoded plainly and speculatively, in turns, on the same core.

Time is this thread's, so that other programs on the machine count little; a few sessions at a time are answered plainly and
speculatively by turns, and medians taken, so that what remains hits both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.stats import EngineStats
from etude.learn.model.causal_lm import CausalLM

# Sessions answered together, for each place in the batch: enough that the batch is full most of the time.
SESSIONS_A_PLACE = 3


@dataclass(frozen=True)
class Speedup:
    """Plain against speculative decoding with up to `draft_tokens` guesses, `batch` requests at a time.

    `acceptance` is the share of the guesses of each depth, from the first, that were kept. `ratio` compares the seconds of
    decoding, the draft layers' way through the prompts included; `whole_ratio` adds the model's own, which gains nothing.
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
    """Some sessions answered by one engine."""

    answers: list[list[int]]
    decode_s: float
    whole_s: float
    stats: EngineStats


def measure(
    model: CausalLM,
    requests: Sequence[Request],
    settings: EngineSettings,
    *,
    batch: int = 1,
    repeats: int = 3,
    clock: Callable[[], float] = time.thread_time,
) -> Speedup:
    """Answers `requests` with up to `settings.draft_tokens` guesses and without, `repeats` times each.

    Requests of one session follow one another, as turns do. Each needs a seed, or the two get different random numbers.
    Raises ValueError if there is nothing to compare.
    """
    if not requests or not settings.draft_tokens or any(request.seed is None for request in requests):
        raise ValueError(
            f"{len(requests)} requests and draft_tokens={settings.draft_tokens}: give some of both, and each request a seed"
        )
    parts = _parts(requests, SESSIONS_A_PLACE * batch)
    slots = max(len({request.session_id for request in part}) for part in parts)
    used = settings.model_copy(update={"max_slots": slots, "max_batch": batch, "draft_max_batch": batch})
    plainly = used.model_copy(update={"draft_tokens": 0})
    plain, drafted = list[list[_Pass]](), list[list[_Pass]]()  # by part, by repeat
    for part in parts:
        plain.append([])
        drafted.append([])
        for _ in range(repeats):
            plain[-1].append(_run(model, part, plainly, clock))
            drafted[-1].append(_run(model, part, used, clock))
    return _compared(batch, settings.draft_tokens, plain, drafted)


def _compared(batch: int, draft_tokens: int, plain: list[list[_Pass]], drafted: list[list[_Pass]]) -> Speedup:
    answers = [answer for passes in plain for answer in passes[0].answers]
    again = [answer for passes in drafted for answer in passes[0].answers]
    decoded = sum(len(answer) - 1 for answer in answers)  # the first token belongs to the prompt's forward
    plain_s, drafted_s = _seconds(plain, lambda one: one.decode_s), _seconds(drafted, lambda one: one.decode_s)
    stats = [passes[0].stats for passes in drafted]
    depths = range(max(len(one.drafted) for one in stats))
    made = [sum(one.drafted[depth] for one in stats if depth < len(one.drafted)) for depth in depths]
    kept = [sum(one.accepted[depth] for one in stats if depth < len(one.accepted)) for depth in depths]
    return Speedup(
        batch=batch,
        draft_tokens=draft_tokens,
        requests=len(answers),
        tokens=sum(len(answer) for answer in answers),
        same=sum(one == other for one, other in zip(answers, again, strict=True)),
        acceptance=tuple(good / all_ for good, all_ in zip(kept, made, strict=True)),
        tokens_per_step=decoded / max(1, sum(one.decode_rows for one in stats)),
        plain_tokens_per_s=decoded / plain_s,
        speculative_tokens_per_s=decoded / drafted_s,
        ratio=plain_s / drafted_s,
        whole_ratio=_seconds(plain, lambda one: one.whole_s) / _seconds(drafted, lambda one: one.whole_s),
    )


def _parts(requests: Sequence[Request], sessions: int) -> list[list[Request]]:
    """The requests of a number of sessions at a time, in their order."""
    by_session: dict[str, list[Request]] = {}
    for request in requests:
        by_session.setdefault(request.session_id, []).append(request)
    groups = list(by_session.values())
    return [
        [request for group in groups[start : start + sessions] for request in group]
        for start in range(0, len(groups), sessions)
    ]


def _run(model: CausalLM, requests: list[Request], settings: EngineSettings, clock: Callable[[], float]) -> _Pass:
    core = EngineCore(model, settings, clock=clock)
    tickets = [core.submit(request) for request in requests]
    done: dict[int, Completion] = {}
    start = clock()
    while core.busy:
        done.update(core.step())
    whole_s = clock() - start
    tokens = [done[ticket].tokens for ticket in tickets]
    return _Pass([one.ids for one in tokens if one is not None], core.stats.decode_s, whole_s, core.stats)


def _seconds(passes: list[list[_Pass]], of: Callable[[_Pass], float]) -> float:
    """The medians over the repeats, summed over the parts."""
    return sum(statistics.median(of(one) for one in repeats) for repeats in passes)
