"""Figures of one training step and of the whole run, from the rollouts trained and what the trainer measured. Pure.

Values of a step go to the event log and into `steps.jsonl` (a step trained again after a kill keeps its line);
`summarize` adds them up to the `rl` object of the report. Rates and shares are fractions here, the bench speaks percent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from etude.core.trace.segment import Rollout, route_mask

# What a point of the report's learning curve shows; everything else stays in the event log.
CURVE = (
    "pass_rate reward reward_outcome reward_kl reward_length advantage_abs uniform_groups harder_groups staleness_max "
    "staleness_mean drift_k3 drift_p99 drift_k3_unreplayed drift_p99_unreplayed delta_ratio delta_bytes grad_norm entropy turns "
    "sampled_tokens wait_s train_s train_cpu_s "
    "sync_s draft_acceptance_1 draft_loss"
).split()
# Counters of self-summaries, of all rollouts of a step together.
SUMMARIES = ("summaries", "summary_tokens", "broken_summaries")


def step_values(
    step: int, rollouts: Sequence[Rollout], components: Sequence[dict[str, float]], advantages: Sequence[float]
) -> dict[str, float]:
    """What the batch of `step` looked like. `components` and `advantages` are the trainer's, in the rollouts' order."""
    ages = [step - rollout.start_version for rollout in rollouts if rollout.start_version >= 0]
    sampled = sum(int(segment.sampled.sum()) for rollout in rollouts for segment in rollout.segments)
    values = {
        "rollouts": float(len(rollouts)),
        "reward": _mean([sum(parts.values()) for parts in components]),
        "advantage_abs": _mean([abs(value) for value in advantages]),
        "staleness_max": float(max(ages, default=0)),
        "staleness_mean": _mean([float(age) for age in ages]),
        "in_flight_swaps": float(sum(len(versions(rollout)) - 1 for rollout in rollouts if versions(rollout))),
        "swapped_in_flight": float(sum(len(versions(rollout)) > 1 for rollout in rollouts)),
        "summarized": float(sum(len(rollout.segments) > 1 for rollout in rollouts)),
        "segments": float(sum(len(rollout.segments) for rollout in rollouts)),
        **{name: sum(rollout.counters.get(name, 0.0) for rollout in rollouts) for name in SUMMARIES},
        "sampled_tokens": float(sampled),
        "routed_tokens": float(sum(_routed(rollout) for rollout in rollouts)),
        "retried": float(sum(rollout.info.get("tries", 1) - 1 for rollout in rollouts)),
        "verdicts_shared": float(sum(rollout.info.get("verdict_shared", False) for rollout in rollouts)),
        "handed_over": float(sum(rollout.info.get("handed_over", False) for rollout in rollouts)),
        "ended_too_large": float(sum(rollout.info.get("ended_too_large", False) for rollout in rollouts)),
    }
    for name in components[0] if components else ():
        values[f"reward_{name}"] = _mean([parts[name] for parts in components])
    for name in ("turns", "calls", "malformed_turns", "failed_calls", "todos_unfinished", "edits_untested"):
        values[name] = _mean([rollout.counters.get(name, 0.0) for rollout in rollouts])
    for phase in ("create", "policy", "tools", "export", "grade", "all"):
        values[f"rollout_{phase}_s"] = _mean([r.info.get("seconds", {}).get(phase, 0.0) for r in rollouts])
    return values


def outcome_values(groups: Sequence[Sequence[float]]) -> dict[str, float]:
    """How a step's tasks went, from the outcomes of all groups made for it, those that were set aside included: the share of rollouts that solved
    theirs, and of groups whose outcomes are all the same, which teach nothing but effort and manners."""
    outcomes = [outcome for group in groups for outcome in group]
    return {
        "pass_rate": _mean([float(outcome >= 1.0) for outcome in outcomes]),
        "uniform_groups": _mean([float(len(set(group)) == 1) for group in groups]),
    }


def component_values(measured: Sequence[dict[str, float]], weights: dict[str, float]) -> dict[str, float]:
    """Of each component the mean before any weight, over the rollouts that have it, how many have not, and the weight of the step."""
    names = sorted({name for parts in measured for name in parts})
    values = {f"raw_{name}": _mean([parts[name] for parts in measured if name in parts]) for name in names}
    values |= {f"without_{name}": float(sum(name not in parts for parts in measured)) for name in weights}
    return values | {f"weight_{name}": weight for name, weight in weights.items()}


def tool_shares(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Each tool's share of all the calls of the batch, and the broken calls and turns for each turn."""
    total: Counter[str] = Counter()
    for rollout in rollouts:
        total.update(rollout.counters)
    calls, turns = total["calls"], total["turns"]
    used = {name.removeprefix("calls_"): count for name, count in total.items() if name.startswith("calls_")}
    shares = {f"share_{name}": count / calls for name, count in sorted(used.items())} if calls else {}
    broken = total["malformed_calls"] + total["malformed_turns"]
    return shares | ({"broken_per_turn": broken / turns} if turns else {})


def versions(rollout: Rollout) -> Counter[int]:
    """Sampled tokens of a rollout by policy version."""
    counts: Counter[int] = Counter()
    for segment in rollout.segments:
        counts.update(segment.versions[segment.sampled].tolist())
    return counts


def summarize(steps: Sequence[dict[str, float]], by_version: Counter[int], totals: dict[str, float]) -> dict[str, Any]:
    """The report's `rl` object; `steps` in order, one each. `totals` are the figures of the processes (idle shares ...)."""
    if not steps:
        raise ValueError("no step was trained, so there is nothing to summarize")
    deltas = [step for step in steps if step.get("delta_bytes", 0) > 0]
    return {
        "steps": len(steps),
        "curve": [{"step": int(step["step"])} | {name: step[name] for name in CURVE if name in step} for step in steps],
        "staleness": {
            "max": int(max(step["staleness_max"] for step in steps)),
            "mean": _weighted(steps, "staleness_mean", "rollouts"),
        },
        "drift": _drift(steps),
        "replay": _replay(steps),
        "delta": {
            "ratio": _mean([step["delta_ratio"] for step in deltas]),
            "bytes": int(_mean([step["delta_bytes"] for step in deltas])),
        },
        "counts": _counts(steps)
        | {
            "sampled_tokens": int(sum(step["sampled_tokens"] for step in steps)),
            "tokens_by_version": {str(version): by_version[version] for version in sorted(by_version)},
        },
        "times": totals,
    }


def _drift(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean k3 by tokens and the largest p99, over the steps that have both as numbers; `steps_without` counts the others that sampled tokens.
    NaN if no step has them."""
    sampled = [step for step in steps if step["sampled_tokens"]]
    sound = [step for step in sampled if math.isfinite(step["drift_k3"]) and math.isfinite(step["drift_p99"])]
    found = {
        "k3": _weighted(sound, "drift_k3", "sampled_tokens"),
        "p99": max((step["drift_p99"] for step in sound), default=float("nan")),
    }
    return found | ({"steps_without": float(len(sampled) - len(sound))} if len(sound) < len(sampled) else {})


def _replay(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Over the steps whose batch was scored without replay too: medians of p99 |dlogp|, means of k3, both ways; empty where there are none."""
    both = [step for step in steps if "drift_p99_unreplayed" in step]
    if not both:
        return {}
    found: dict[str, float] = {"steps": len(both)}
    for name in ("", "_unreplayed"):
        found[f"k3{name}"] = _mean([step[f"drift_k3{name}"] for step in both])
        finite = [value for step in both if math.isfinite(value := step[f"drift_p99{name}"])]
        found[f"p99{name}"] = float(np.median(finite)) if finite else float("nan")
    return found


# Of a step's figures those that add up over the run, by the name that the report has for them.
COUNTED = {
    **{
        name: name
        for name in ("rollouts", "summarized", "segments", *SUMMARIES, "swapped_in_flight", "in_flight_swaps")
    },
    "replayed_tokens": "routed_tokens",
    **{name: name for name in ("replayed_routes", "replaced_routes", "retried", "verdicts_shared")},
    **{name: name for name in ("handed_over", "ended_too_large")},
}


def _counts(steps: Sequence[dict[str, float]]) -> dict[str, Any]:
    return {name: int(sum(step.get(figure, 0) for step in steps)) for name, figure in COUNTED.items()}


def _routed(rollout: Rollout) -> int:
    """Tokens whose experts the engine recorded."""
    routes = [segment.routes for segment in rollout.segments if segment.routes is not None]
    return sum(int(route_mask(array)[:, 0, 0].sum()) for array in routes if array.size)


def _mean(values: Sequence[float]) -> float:
    """Of those that are finite: the trainer leaves the others' groups out."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else 0.0


def _weighted(steps: Sequence[dict[str, float]], name: str, weight: str) -> float:
    """Of the steps that have any: a step without a token has no drift, which is NaN there. NaN if none has."""
    weighed = [step for step in steps if step[weight]]
    total = sum(step[weight] for step in weighed)
    return sum(step[name] * step[weight] for step in weighed) / total if total else float("nan")
