"""What a healthy run could do better. None is shown while there is an alarm: first the fault, then the tuning."""

from __future__ import annotations

from etude.evaluate.report.advisories.advisory import Advisory
from etude.evaluate.report.advisories.history import RECENT, RL, RunState

UNIFORM = 0.5  # of the groups teach nothing: half of the sampling is wasted
TRUNCATED = 0.25  # of the attempts were cut off rather than ended
CUT = ("max_turns", "max_tokens", "length", "time_limit")
AT_BOUND = 0.8  # mean staleness over its bound: most of the batch is as old as it may be
WAITING = 0.7  # of a step the trainer waits for rollouts
STARVED = 0.05  # it hardly waits: sampling is ahead
FEWEST_ATTEMPTS = 32  # a share of fewer is a guess


def uniform_groups(history: RunState) -> list[Advisory]:
    """Groups whose rollouts all got the same reward have no advantage."""
    share = history.rl.lately("uniform_groups")
    if share is None or share <= UNIFORM:
        return []
    solved = history.rl.lately("pass_rate")
    easy = solved is not None and solved > 0.5
    return [
        Advisory(
            "hint",
            "uniform_groups",
            f"{share:.0%} of the groups of the last {RECENT} steps are all alike and teach nothing"
            + (f"; {solved:.0%} of the rollouts solve their task" if solved is not None else ""),
            "harder tasks (rl.levels)" if easy else "easier tasks (rl.levels), more demonstrations, or larger groups",
            {"share": round(share, 4), "pass_rate": solved},
            "steps step uniform_groups pass_rate --where 'stage = rl'",
            "Learning curves",
        )
    ]


def truncation(history: RunState) -> list[Advisory]:
    """Attempts that ran into a limit."""
    ended = sum(history.ends.values())
    cut = {name: history.ends[name] for name in CUT if history.ends[name]}
    share = sum(cut.values()) / ended if ended else 0.0
    if ended < FEWEST_ATTEMPTS or share <= TRUNCATED:
        return []
    counts = ", ".join(f"{name} {count}" for name, count in cut.items())
    return [
        Advisory(
            "hint",
            "truncation",
            f"{share:.0%} of the latest {ended} attempts were cut off ({counts})",
            "raise the harness' limits, or make long attempts dearer (rl.length)",
            {"share": round(share, 4), "ends": dict(history.ends)},
            "rollouts id info.end counters.turns sampled_tokens --sort -step --limit 100",
            "Learning curves",
        )
    ]


def staleness(history: RunState) -> list[Advisory]:
    """Most of what is trained on is as old as it may be: sampling waits for training."""
    bound = history.recipe.get(RL, {}).get("max_staleness", 0)
    mean = history.rl.lately("staleness_mean")
    if not bound or mean is None or mean < AT_BOUND * bound:
        return []
    return [
        Advisory(
            "hint",
            "staleness",
            f"the mean staleness of the last {RECENT} steps is {mean:.2f}, near its bound of {bound}: sampling is held back",
            "a faster trainer (rl.threads), fewer slots, or a higher rl.max_staleness where drift allows it",
            {"mean": round(mean, 3), "bound": bound},
            "steps step staleness_mean staleness_max wait_s train_s --where 'stage = rl'",
            "Asynchrony",
        )
    ]


def balance(history: RunState) -> list[Advisory]:
    """One side of the run waits for the other."""
    waited, trained = history.rl.lately("wait_s"), history.rl.lately("train_s")
    if waited is None or trained is None or waited + trained <= 0:
        return []
    share = waited / (waited + trained)
    if STARVED <= share <= WAITING:
        return []
    slow = share > WAITING
    return [
        Advisory(
            "hint",
            "balance",
            f"the trainer waits for rollouts {share:.0%} of the time",
            "more slots (rl.slots), draft tokens, or more engine threads" if slow else "rl.threads, or larger batches",
            {"share": round(share, 4), "wait_s": round(waited, 3), "train_s": round(trained, 3)},
            "steps step wait_s train_s sync_s --where 'stage = rl'",
            "Asynchrony",
        )
    ]


HINTS = (uniform_groups, truncation, staleness, balance)
