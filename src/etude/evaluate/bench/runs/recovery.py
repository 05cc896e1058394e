"""What a self-summary costs or saves: the same tasks with it and without, at an equal budget of tokens.

Both arms may spend the same tokens in all segments together; only the trigger differs. Without summaries a session keeps all it read
before it, with them it goes on from what it wrote down. The figure is the lift, paired by task: what summing up loses, or gains by
leaving noise behind. An arm is a policy of its own in the folder, under its name and `WITHOUT`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.agent.harness.settings import HarnessSettings
from etude.core.statistics.bounded import difference
from etude.core.statistics.pairs import paired_differences
from etude.evaluate.bench.runs.table import PolicyResult
from etude.evaluate.bench.scores import Scores

WITHOUT = ".unsummarized"
TRIGGER = "summary_trigger_tokens"


class OneArm(ValueError):
    """There is nothing to compare; says why."""


def require_trigger(harness: HarnessSettings, key: str) -> None:
    """Raises OneArm where sessions are never summed up."""
    if not harness.summary_trigger_tokens:
        raise OneArm(
            f"--arms: {key} never sums its sessions up (harness.{TRIGGER} is 0), so both arms would be the same; take a suite that "
            f"pins it (targeted-recovery), or a recipe with --set harness.{TRIGGER}=N"
        )


def summary_lifts(
    rows: Sequence[PolicyResult], found: Mapping[str, Scores], weights: Mapping[str, float], *, resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Of every policy that was asked in both arms: the points that summing up is worth, and what both came to spend."""
    twins = {(row.facts["name"], row.facts["effort"]): row for row in rows}
    pairs = [
        (row, twin)
        for row in rows
        if (twin := twins.get((row.facts["name"] + WITHOUT, row.facts["effort"]))) is not None
    ]
    return [_lift(*pair, found, weights, resamples, seed) for pair in pairs]


def _lift(
    summed: PolicyResult, whole: PolicyResult, found: Mapping[str, Scores], weights: Mapping[str, float], resamples: int, seed: int
) -> dict[str, Any]:
    changes = paired_differences(found[whole.key].means(), found[summed.key].means())
    points, ci95 = difference(changes, weights, resamples=resamples, seed=seed).percent()
    return {
        "with": summed.key,
        "without": whole.key,
        "points": points,
        "ci95": ci95,
        "tasks": sum(map(len, changes.values())),
        "tokens_with": _tokens(summed),
        "tokens_without": _tokens(whole),
        "budget_tokens": summed.facts["settings"]["max_session_tokens"],
        "trigger_tokens": summed.facts["settings"][TRIGGER],
    }


def _tokens(row: PolicyResult) -> float:
    return round(sum(one.tokens for one in row.outcomes) / len(row.outcomes), 1)
