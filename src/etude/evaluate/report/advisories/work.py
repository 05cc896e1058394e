"""Alarms of the work itself: it stalls, it is repeated, or a part of it is not done. Each bound here has its reason."""

from __future__ import annotations

import statistics

from etude.evaluate.report.advisories.advisory import Advisory
from etude.evaluate.report.advisories.history import FEWEST_STEPS, RECENT, RL, RunState, Steps

STALL = 6.0  # times the stage's own median step: over any variation of a step that was seen in our runs
FAULT_SHARE = 0.05  # of attempts: one in twenty made again is paid for in time, and points at a cause
SILENT_SHARE = 0.1  # of the passes: with one in ten missing a mean may be another than it seems
ABORT_SHARE = 0.25  # of attempts: weights change under rollouts all the time, but they are to go on, not to end


def stall(history: RunState) -> list[Advisory]:
    """No step for STALL times the stage's median step while its process is at work."""
    found = []
    for stage, steps in history.stages.items():
        usual = _median_s(steps)
        if usual is None or steps.finished or not history.alive:
            continue
        waited = history.now - steps.times[-1]
        if waited > STALL * usual:
            last = steps.rows[-1]["step"]
            found.append(
                Advisory(
                    "alarm",
                    "stall",
                    f"{stage} has made no step for {waited:.0f} s; its median step takes {usual:.1f} s (last: {last})",
                    "see which process waits: `etude report query RUN events --sort -time --limit 20`; a kill and the "
                    "same command again goes on from the last step",
                    {"stage": stage, "waited_s": round(waited, 1), "median_step_s": round(usual, 3), "step": last},
                    f"steps stage step time --where 'stage = {stage}' --sort -step --limit 20",
                    "Learning curves",
                )
            )
    return found


def stalled_before(history: RunState) -> list[Advisory]:
    """Steps that took STALL times the median: the run went on, but something held it up."""
    found = []
    for stage, steps in history.stages.items():
        usual = _median_s(steps)
        if usual is None:
            continue
        took = [b - a for a, b in zip(steps.times, steps.times[1:], strict=False)]
        slow = [(steps.rows[i + 1]["step"], round(s, 1)) for i, s in enumerate(took) if s > STALL * usual]
        lost = sum(seconds for _, seconds in slow)
        if slow and lost > 0.1 * sum(took):  # a pause of one step in a long run needs no alarm
            worst = max(slow, key=lambda pair: pair[1])
            found.append(
                Advisory(
                    "alarm",
                    "stalled_before",
                    f"{len(slow)} of {stage}'s steps took over {STALL:g} times the median {usual:.1f} s, {lost:.0f} s in all; "
                    f"the longest, {worst[1]:g} s, before step {worst[0]}",
                    "look at what the run logged then; a machine shared with other work does this too",
                    {"stage": stage, "steps": dict(slow), "median_step_s": round(usual, 3)},
                    f"events --where 'stage = {stage}' time text kind",
                    "Learning curves",
                )
            )
    return found


def infra_faults(history: RunState) -> list[Advisory]:
    """Attempts that had to be made again through our fault."""
    made, again = history.rl.of("rollouts")[-RECENT:], history.rl.of("retried")[-RECENT:]
    met = history.faults + history.lost
    other = sum(count for name, count in met.items() if name != "PolicyError")
    tries = sum(made) + sum(again)
    share = sum(again) / tries if tries else 0.0
    share = max(share, other / (history.attempts + other) if history.attempts + other else 0.0)
    restarts = history.summaries.get(RL, {}).get("restarts", 0) or 0
    if share <= FAULT_SHARE and not restarts:
        return []
    classes = ", ".join(f"{name} {count}" for name, count in met.most_common(4))
    lost = history.lost.total()
    said = f"{share:.0%} of the latest attempts met an infra fault" if share > FAULT_SHARE else ""
    said += f", {lost} of them were given up" if said and lost else " and were made again" if said else ""
    died = f"engine or trainer was restarted {restarts:g} times" if restarts else ""
    return [
        Advisory(
            "alarm",
            "infra_faults",
            "; ".join(filter(None, [said, classes if said else "", died])),
            "`etude doctor`; then the sandboxes' memory and number (rl.slots), or the endpoint's limits",
            {"share": round(share, 4), "classes": dict(met), "given_up": lost, "restarts": restarts},
            "faults" if lost else "rollouts id info.tries info.faults --where 'info.tries > 1'",
            "Asynchrony",
        )
    ]


def abort_storm(history: RunState) -> list[Advisory]:
    """Completions that the engine broke off, so that whole sessions start again."""
    aborted = history.faults["PolicyError"] + history.ends["abort"]
    share = aborted / (history.attempts + aborted) if history.attempts else 0.0
    if share <= ABORT_SHARE:
        return []
    return [
        Advisory(
            "alarm",
            "abort_storm",
            f"{aborted} sessions were broken off by the policy's side for {history.attempts} that ended ({share:.0%})",
            "the engine is out of room or is stopped at every weight change: engine.max_len and slots, rl.slots, its log",
            {"aborted": aborted, "attempts": history.attempts, "share": round(share, 4)},
            "rollouts id info.tries info.faults --where 'info.tries > 1'",
            "Asynchrony",
        )
    ]


def judge_missing(history: RunState) -> list[Advisory]:
    """A suite with rubrics but without a judge; or criteria that the judge left undecided for many passes: their mean is of the others."""
    if history.rubrics and not history.judged:
        named = f"{history.judge} was named and has decided nothing" if history.judge else "no judge was named"
        return [
            Advisory(
                "alarm",
                "judge_missing",
                f"{history.rubrics} of the suite's tasks have a rubric and {named}: what rubrics ask is left out of every score",
                "name one (`etude bench run --judge ...`), or judge what is there with `etude bench judge`",
                {"tasks_with_rubric": history.rubrics, "judge": history.judge or None},
                "judgements",
                "Judged",
            )
        ]
    shares = {
        name: silent / (decided + silent) for name, (decided, silent) in history.judged.items() if decided + silent
    }
    missing = {name: round(share, 4) for name, share in shares.items() if share > SILENT_SHARE}
    if not missing:
        return []
    worst = sorted(missing, key=lambda name: -missing[name])
    worst_shares = "; ".join(f"{name}: {missing[name]:.0%}" for name in worst[:3]) + (" ..." if len(worst) > 3 else "")
    return [
        Advisory(
            "alarm",
            "judge_missing",
            f"the judge left over {SILENT_SHARE:.0%} of the passes undecided on {len(missing)} criteria ({worst_shares})",
            "see why in the judgements, mend the judge's endpoint, and run `etude bench judge` again: what is decided stays",
            missing,
            "judgements --where 'value = null'",
        )
    ]


def damaged_files(history: RunState) -> list[Advisory]:
    """Groups of rollouts that can't be read: figures and pages are of the others."""
    if not history.damaged:
        return []
    name, why = next(iter(history.damaged.items()))
    return [
        Advisory(
            "alarm",
            "damaged_files",
            f"{len(history.damaged)} of the latest files of rollouts can't be read ({name}: {why})",
            "look at the disk; RL goes on without them, a step that wants one again says so",
            {"files": ", ".join(sorted(history.damaged))},
            "rollouts",
        )
    ]


def unreachable_tasks(history: RunState) -> list[Advisory]:
    """RL went on without tasks that could not be attempted."""
    lines = history.summaries.get(RL, {}).get("unreachable", [])
    if not lines:
        return []
    return [
        Advisory(
            "alarm",
            "unreachable_tasks",
            f"{len(lines)} task{'s were' if len(lines) > 1 else ' was'} set aside, which kept meeting infrastructure errors: {lines[0]}",
            "repair the tasks' environments, or leave the tasks out: RL trained on others in their place",
            {"tasks": lines},
            "steps step retried --where 'stage = rl'",
        )
    ]


WORK = (stall, stalled_before, infra_faults, unreachable_tasks, abort_storm, judge_missing, damaged_files)


def _median_s(steps: Steps) -> float | None:
    took = [b - a for a, b in zip(steps.times, steps.times[1:], strict=False) if b > a]
    return statistics.median(took) if len(took) >= FEWEST_STEPS - 1 else None
