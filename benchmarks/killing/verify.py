"""What has to hold of a run that was killed over and over: pure functions over what lies in its folder, each giving the broken promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from etude.core.trace.segment import Rollout
from etude.rl.steps import StepRecord

Entries = Sequence[Mapping[str, Any]]
AFTER = 2  # steps that may still be trained before a death is felt
EXPORT = "the files can't be exported"  # an attempt's own doing that no grader sees


def trained_once(entries: Entries, task_ids: Sequence[str], steps: int) -> list[str]:
    """Promise 6: the trained groups are the schedule's, none twice, one batch a step, and each group is the schedule's task."""
    batches = [entry for entry in entries if entry["kind"] == "batch"]
    broken = [f"step {one['step']} is batch number {at}" for at, one in enumerate(batches) if one["step"] != at]
    if len(batches) != steps:
        broken.append(f"{len(batches)} batches for {steps} steps")
    groups = [group for one in batches for group in one["groups"]]
    broken += [f"group {group} is trained twice" for group in sorted({g for g in groups if groups.count(g) > 1})]
    if set(groups) != set(range(len(task_ids))):
        odd = sorted(set(groups) ^ set(range(len(task_ids))))
        broken.append(f"groups trained and groups of the schedule differ in {odd[:10]}")
    for entry in entries:
        if entry["kind"] == "admitted" and entry["task"] != task_ids[entry["group"]]:
            broken.append(f"group {entry['group']} was admitted as {entry['task']}, not {task_ids[entry['group']]}")
    trained = {entry["step"] for entry in entries if entry["kind"] == "trained"}
    return broken + [f"step {step} was decided and never trained" for step in range(steps) if step not in trained]


def same_weights(entries: Entries) -> list[str]:
    """Promise 6: a step that was trained again came to the same weights."""
    digests: dict[int, set[str]] = {}
    for entry in entries:
        if entry["kind"] == "trained":
            digests.setdefault(entry["step"], set()).add(entry["digest"])
    return [f"step {step} came to {len(found)} weights" for step, found in sorted(digests.items()) if len(found) > 1]


def steps_told(entries: Entries, records: Sequence[StepRecord], steps: int) -> list[str]:
    """Each step has its line, of the batch that the ledger names."""
    batches = {entry["step"]: entry["groups"] for entry in entries if entry["kind"] == "batch"}
    recorded = {record.step: record.groups for record in records}
    broken = [f"step {step} has no line" for step in range(steps) if step not in recorded]
    return broken + [
        f"step {step}'s line tells of {recorded[step]}" for step in recorded if recorded[step] != batches.get(step)
    ]


def versions_in_order(entries: Entries, records: Sequence[StepRecord], max_staleness: int) -> list[str]:
    """Promise 5: versions of admission never go back; no token is newer than its step, nor older than the bound allows."""
    admitted = [entry for entry in entries if entry["kind"] == "admitted"]
    pairs = zip(admitted, admitted[1:], strict=False)
    broken = [
        f"group {b['group']} was admitted at version {b['version']} after {a['version']}"
        for a, b in pairs
        if b["version"] < a["version"]
    ]
    for record in records:
        odd = [v for v in map(int, record.versions) if not record.step - max_staleness <= v <= record.step]
        if odd:
            broken.append(f"step {record.step} trained tokens of versions {odd}")
    return broken


def rewards_explained(groups: Mapping[int, Sequence[Rollout]], gradings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Promise 8: every outcome in the batches is a verdict that a grader gave on this task, or the files could not be taken."""
    given = {(grading["task"], grading["score"], grading["reason"]) for grading in gradings if "score" in grading}
    return [
        f"rollout {rollout.id} has {rollout.rewards['outcome']} for {rollout.info['verdict']!r}, which no grader gave"
        for rollouts in groups.values()
        for rollout in rollouts
        if (rollout.task_id, rollout.rewards["outcome"], rollout.info["verdict"]) not in given
        and not rollout.info["verdict"].startswith(EXPORT)
    ]


def verdicts_repeated(gradings: Iterable[Mapping[str, Any]], again: Mapping[str, float]) -> list[str]:
    """Promise 8: a verdict given during kills equals the verdict that the same files get without kills. `again`: score by key."""
    return [
        f"{grading['task']} ({grading['key']}) got {grading['score']} ({grading['reason']!r}), in peace {again[grading['key']]}"
        for grading in gradings
        if "score" in grading and grading["score"] != again[grading["key"]]
    ]


def time_lost(trained: Mapping[int, float], kills: Sequence[tuple[float, str]]) -> dict[str, dict[str, float]]:
    """By kind, of the kills that had their time to themselves: how many, and how much longer than quiet ones the stretch between two steps in
    which they fell and the `AFTER` next ones were together, s (median, most). "none": the quiet stretches themselves.

    `trained`: unix s of each step's end; `kills`: unix s and kind. A stretch is quiet if no kill falls in it or in the `AFTER` stretches before it.
    """
    ends = [trained[step] for step in sorted(trained)]
    stretches = list(zip(ends, ends[1:], strict=False))
    within = [[kind for at, kind in kills if begin < at <= end] for begin, end in stretches]
    quiet = [end - begin for n, (begin, end) in enumerate(stretches) if not any(within[max(0, n - AFTER) : n + 1])]
    usual = median(quiet) if quiet else 0.0
    lost: dict[str, list[float]] = {}
    for n, here in enumerate(within):
        alone = len(here) == 1 and not any(within[max(0, n - AFTER) : n]) and not any(within[n + 1 : n + 1 + AFTER])
        if alone:
            hit = stretches[n : n + 1 + AFTER]
            lost.setdefault(here[0], []).append(hit[-1][1] - hit[0][0] - len(hit) * usual)
    found = {kind: {"alone": len(s), "median_s": median(s), "most_s": max(s)} for kind, s in sorted(lost.items())}
    return found | {"none": {"alone": len(quiet), "median_s": usual, "most_s": max(quiet, default=0.0)}}
