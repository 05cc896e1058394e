"""What draft layers save on agents' turns: acceptance on sessions that were not trained on, and decoding with drafts compared to decoding without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from etude.agent.policy.protocol import Request
from etude.core.trace.segment import Segment
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.speedup import measure
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.count import count_parameters
from etude.learn.train.acceptance import POSITIONS, measure_acceptance
from etude.pipeline.recipe.recipe import ProbeSettings


def measure_drafts(
    model: CausalLM,
    sessions: Sequence[Segment],
    stop_ids: tuple[int, ...],
    settings: ProbeSettings,
    engine: EngineSettings,
    temperature: float,
) -> dict[str, Any]:
    """Acceptance by depth and position, and the speed-up at each batch."""
    depths = measure_acceptance(model, [(segment.ids, segment.sampled) for segment in sessions], temperature)
    first = depths[0].by_position
    ends: dict[int, int] = dict(zip(POSITIONS, (*POSITIONS[1:], model.config.context_length), strict=True))
    return {
        "acceptance": {rule: [depth.rates[rule] for depth in depths] for rule in depths[0].rates},
        "by_position": [
            [start, min(ends[start], model.config.context_length), of["coupled"]] for start, of in first.items()
        ],
        "speedup": speedup(model, sessions, stop_ids, settings, engine, temperature, settings.batches),
        "parameters": count_parameters(model.config).drafts,
    }


def speedup(
    model: CausalLM,
    sessions: Sequence[Segment],
    stop_ids: tuple[int, ...],
    settings: ProbeSettings,
    engine: EngineSettings,
    temperature: float,
    batches: Sequence[int],
) -> dict[str, Any]:
    """Decoding with drafts against decoding without on the first turns of sessions; acceptance is that of the batch of one."""
    asked = list(requests(sessions, stop_ids, temperature, settings))
    drafting = engine.model_copy(
        update={"draft_tokens": settings.draft_tokens, "threads": 1, "company": 0, "tick_s": 0.0}
    )
    found = {batch: measure(model, asked, drafting, batch=batch, repeats=settings.repeats) for batch in batches}
    one = found[batches[0]]
    return {
        "batch": {str(batch): round(of.ratio, 3) for batch, of in found.items()},
        "identical": all(of.identical for of in found.values()),
        "draft_tokens": settings.draft_tokens,
        "accepted": list(one.acceptance),
        "tokens_per_step": one.tokens_per_step,
        "tokens": one.tokens,
        "plain_tokens_per_s": one.plain_tokens_per_s,
        "speculative_tokens_per_s": one.speculative_tokens_per_s,
    }


def requests(
    sessions: Sequence[Segment], stop_ids: tuple[int, ...], temperature: float, settings: ProbeSettings
) -> Iterator[Request]:
    """One turn of each of the first sessions, evenly early and late in them."""
    for number, segment in enumerate(sessions[: settings.requests]):
        sampled = segment.sampled.astype(np.int8)
        turns = np.flatnonzero(np.diff(sampled, prepend=np.int8(0)) == 1)
        turns = turns[turns > 0]
        if len(turns):
            start = int(turns[number % len(turns)])
            yield Request(
                session_id=f"probe-{number}",
                messages=(),
                prompt_ids=tuple(int(token) for token in segment.ids[:start]),
                stop_ids=stop_ids,
                temperature=temperature,
                seed=settings.seed + number,
            )
