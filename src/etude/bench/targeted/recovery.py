"""What a self-summary costs or saves: the same tasks with it and without, at an equal budget of tokens.

Both arms may spend the same tokens in all segments together; only the trigger differs. Without summaries a session keeps all it read
before it, with them it goes on from what it wrote down. The figure is the lift, paired by task: what summing up loses, or gains by
leaving noise behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etude.bench.claims import lift
from etude.bench.outcome import Outcome
from etude.bench.settings import BenchSettings
from etude.harness.settings import HarnessSettings

WITH, WITHOUT = "with-summaries", "without-summaries"


def arms(harness: HarnessSettings) -> dict[str, HarnessSettings]:
    """Settings of both arms. Raises ValueError where `harness` has no trigger: there would be one arm only."""
    if not harness.summary_trigger_tokens:
        raise ValueError(
            "harness.summary_trigger_tokens is 0: set the number of tokens at which sessions sum themselves up"
        )
    return {WITH: harness, WITHOUT: harness.model_copy(update={"summary_trigger_tokens": 0})}


def recovered(with_summaries: Sequence[Outcome], without: Sequence[Outcome], settings: BenchSettings) -> dict[str, Any]:
    """The paired lift of summing up, and the tokens that each arm came to use. Raises ValueError if the tasks differ."""
    used = {
        name: sum(o.tokens for o in found) / len(found)
        for name, found in ((WITH, with_summaries), (WITHOUT, without))
        if found
    }
    return {"lift": lift(list(without), list(with_summaries), settings), "tokens_per_pass": used}
