"""Alarms of learning: it goes the wrong way, or what it learns from is not what was sampled. Bounds stand here with their reason."""

from __future__ import annotations

import math
import statistics

from etude.core.events.finite import not_finite
from etude.evaluate.report.advisories.advisory import Advisory
from etude.evaluate.report.advisories.history import FEWEST_STEPS, RECENT, RL, RunState

SIGMAS = 3.0
REFERENCE = 24  # steps before the last RECENT ones that say what is usual
DRIFT_K3 = 0.01  # mean k3 is about half the squared log-ratio: at 0.01 importance weights are off by 14%
DRIFT_P99 = 1.0  # nats: one token in a hundred is e times as likely to the trainer as to the sampler
PROBE_K3 = 1e-3  # same weights on both sides: what is left is numerics, 4% of a probability
ENTROPY_LEFT = 0.2  # of what the first steps had
MASTERED = 0.9  # a policy that solves as much may be sure of itself
DRIFT_STEPS = 30  # until the figure that shifted has a new reference (rl/rewards/alarms.py)
NAMED = 3  # figures that a sentence names
LOSS_RISE = 1.3  # times the best it had been


def reward_drift(history: RunState) -> list[Advisory]:
    """The reward fell below what it was, or leapt above its own trend, by more than chance explains."""
    rewards = history.rl.of("reward")
    if len(rewards) < FEWEST_STEPS + RECENT:
        return []
    before, lately = rewards[:-RECENT][-REFERENCE:], rewards[-RECENT:]
    level, expected, spread, trend_error = _trend(before)
    now = statistics.fmean(lately)
    fallen = (now - level) / max(spread * math.sqrt(1 / RECENT + 1 / len(before)), 1e-9)
    leapt = (now - max(expected, level)) / max(trend_error, 1e-9)
    if fallen > -SIGMAS and leapt < SIGMAS:
        return []
    down = fallen <= -SIGMAS
    words = "fell" if down else "leapt above its own trend"
    usual = level if down else max(expected, level)
    return [
        Advisory(
            "alarm",
            "reward_drift",
            f"the reward {words}: {now:.3f} over the last {RECENT} steps, {usual:.3f} expected from the {len(before)} before "
            f"({fallen if down else leapt:+.1f} sigma)",
            "a fall: lower the learning rate or go back to a checkpoint; look at mismatch and entropy first"
            if down
            else "a leap: read rollouts of the last steps for a grader that is fooled before you believe it",
            {"now": round(now, 4), "expected": round(usual, 4), "sigma": round(fallen if down else leapt, 2)},
            "rollouts step task_id reward rewards.* --sort -step --limit 50",
            "Learning curves",
        )
    ]


def drift(history: RunState) -> list[Advisory]:
    """A figure of RL shifted, and what it is held against has not been learned again since."""
    alarmed = [int(row["step"]) for row in history.rl.rows if (row.get("alarms") or 0) > 0]
    newest = max((int(row["step"]) for row in history.rl.rows), default=0)
    active = [step for step in alarmed if newest - step < DRIFT_STEPS]
    if not active:
        return []
    texts = [alarm["text"] for alarm in history.summaries.get(RL, {}).get("alarms", []) if alarm["step"] in active]
    where = f"step{'s' * (len(active) > 1)} {', '.join(map(str, active))}"
    return [
        Advisory(
            "alarm",
            "drift",
            f"drift alarm at {where}" + (f": {'; '.join(texts)}" if texts else ""),
            "read rollouts from before and after it; a reward that rises without the outcome is being gamed: lower its weight or remove it",
            {"steps": active},
            f"rollouts step task_id reward rewards.* --where 'step >= {active[0]}' --limit 50",
            "Learning curves",
        )
    ]


def not_a_number(history: RunState) -> list[Advisory]:
    """A figure in a finished stage's summary is NaN or infinite: it was computed from nothing, or from a broken number."""
    found = {
        f"{stage}{place}": spelled for stage, rows in history.summaries.items() for place, spelled in not_finite(rows)
    }
    if not found:
        return []
    some = ", ".join(f"{place} is {spelled}" for place, spelled in [*found.items()][:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return [
        Advisory(
            "alarm",
            "not_a_number",
            f"{some}{more}; report.json has null there",
            "find the step where it begins: a stage that sampled or learned nothing has such figures, and so has one that met a broken number",
            found,
        )
    ]


def mismatch(history: RunState) -> list[Advisory]:
    """Trainer and sampler disagree on what was sampled."""
    found: dict[str, float] = {}
    for name, bound in (("drift_k3", DRIFT_K3), ("drift_p99", DRIFT_P99)):
        value = history.rl.lately(name)
        if value is not None and not value <= bound:
            found[name] = value
    probe = history.summaries.get(RL, {}).get("mismatch", {}).get("k3")
    if probe is not None and not probe <= PROBE_K3:
        found["probe_k3"] = probe
    if not found:
        return []
    bounds = {"drift_k3": DRIFT_K3, "drift_p99": DRIFT_P99, "probe_k3": PROBE_K3}
    figures = ", ".join(f"{name} {value:.3g} (bound {bounds[name]:g})" for name, value in found.items())
    return [
        Advisory(
            "alarm",
            "mismatch",
            f"trainer and sampler disagree: {figures}",
            "compare both on a fixed prompt with equal weights; then number formats, expert routes, the chat template; "
            "with equal weights in order, lower rl.max_staleness",
            found,
            "steps step drift_k3 drift_p99 staleness_mean --where 'stage = rl'",
            "Asynchrony",
        )
    ]


def entropy_collapse(history: RunState) -> list[Advisory]:
    """The policy has become sure of itself without solving its tasks."""
    entropy = history.rl.of("entropy")
    if len(entropy) < 2 * FEWEST_STEPS:
        return []
    first, now = statistics.median(entropy[:FEWEST_STEPS]), statistics.fmean(entropy[-RECENT:])
    solved = history.rl.lately("pass_rate")
    if now >= ENTROPY_LEFT * first or (solved is not None and solved >= MASTERED):
        return []
    rate = "" if solved is None else f" while {solved:.0%} of the rollouts solve their task"
    return [
        Advisory(
            "alarm",
            "entropy_collapse",
            f"entropy is {now:.3g} nats a token, {now / first:.0%} of the first steps' {first:.3g}{rate}",
            "groups become uniform and learning ends: a smaller step, a KL to the start (rl.kl_beta), harder or other tasks",
            {"now": round(now, 5), "first": round(first, 5), "pass_rate": solved},
            "steps step entropy pass_rate uniform_groups --where 'stage = rl'",
            "Asynchrony",
        )
    ]


def loss_diverged(history: RunState) -> list[Advisory]:
    """A stage that learns from text has got worse than it was, or its loss is no number."""
    found = []
    for stage, steps in history.stages.items():
        losses = [] if stage == RL else steps.of("mean_loss") or steps.of("loss")
        if len(losses) < 2 * FEWEST_STEPS:
            continue
        now = statistics.fmean(losses[-RECENT:])
        best = min(statistics.fmean(losses[i : i + RECENT]) for i in range(len(losses) - RECENT + 1))
        if now <= LOSS_RISE * best:
            continue
        found.append(
            Advisory(
                "alarm",
                "loss_diverged",
                f"{stage}'s loss is {now:.3g} over its last {RECENT} entries, {best:.3g} at its best",
                "lower the learning rate, or lengthen the warm-up; look for a damaged shard where it began to rise",
                {"stage": stage, "now": now if math.isfinite(now) else str(now), "best": round(best, 4)},
                f"steps step loss mean_loss grad_norm --where 'stage = {stage}'",
                "Learning curves",
            )
        )
    return found


LEARNING = (reward_drift, drift, mismatch, not_a_number, entropy_collapse, loss_diverged)


def _trend(values: list[float]) -> tuple[float, float, float, float]:
    """(mean, what a straight line expects of the mean of the next RECENT, residual deviation, that expectation's standard error).

    Ordinary least squares; the error is the usual one of a mean of new observations at a point of the line.
    """
    n = len(values)
    middle, level = (n - 1) / 2, statistics.fmean(values)
    square = sum((i - middle) ** 2 for i in range(n))
    slope = sum((i - middle) * (v - level) for i, v in enumerate(values)) / square
    residual = sum((v - level - slope * (i - middle)) ** 2 for i, v in enumerate(values))
    spread = math.sqrt(residual / max(1, n - 2))
    ahead = n - 1 + (RECENT + 1) / 2 - middle
    error = spread * math.sqrt(1 / RECENT + 1 / n + ahead**2 / square)
    return level, level + slope * ahead, spread, error
