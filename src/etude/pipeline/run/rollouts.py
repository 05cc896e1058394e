"""Rollouts that lie in folders of runs, whatever made them: groups of RL, outcomes of benches, tries of collections.

A folder is searched below; what counts are the files that those three leave, by the names that they give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from etude.evaluate.bench.outcome import OutcomeError, OutcomeFile
from etude.rl.store import GroupStore
from etude.rollout.collect.tries import FILE as TRIES
from etude.rollout.collect.tries import read_tries
from etude.tasks.difficulty.marking import DifficultySample
from etude.tasks.errors import TaskError

GROUPS = "groups"
OUTCOMES = ("policies", "trials", "bench")  # folders with a file of outcomes a policy


def tried_in(folders: Sequence[Path]) -> Iterator[DifficultySample]:
    """Raises TaskError for a folder without any rollout."""
    for folder in folders:
        if not folder.is_dir():
            raise TaskError(f"--runs {folder}: there is no such folder")
        found = 0
        for one in _all(folder):
            found += 1
            yield one
        if not found:
            raise TaskError(
                f"--runs {folder} holds no rollouts: give a run of `etude run` or `etude rl`, of `etude bench run`, or of `etude session collect`"
            )


def _all(folder: Path) -> Iterator[DifficultySample]:
    for place in sorted(folder.rglob(GROUPS)):
        if place.is_dir():
            yield from _of_groups(place)
    for file in sorted(folder.rglob(TRIES)):
        for row in read_tries(file):
            yield DifficultySample(row.task, row.score, float(row.turns))
    for file in sorted(folder.rglob("*.jsonl")):
        if file.parent.name in OUTCOMES and file.name not in (TRIES, "events.jsonl"):
            yield from _of_outcomes(file)


def _of_groups(place: Path) -> Iterator[DifficultySample]:
    store = GroupStore(place)
    for group in store.groups():
        for rollout in store.load(group):
            counters = rollout.counters
            yield DifficultySample(
                rollout.task_id, rollout.rewards["outcome"], counters.get("turns", 0.0), counters.get("thinking_tokens")
            )


def _of_outcomes(file: Path) -> Iterator[DifficultySample]:
    try:
        outcomes = OutcomeFile(file).outcomes.values()
    except OutcomeError as error:
        raise TaskError(f"--runs: {error}") from error
    for one in outcomes:
        yield DifficultySample(one.task_id, one.score, float(one.turns))
