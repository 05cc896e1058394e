"""Two policies of a bench run side by side: pass by pass of the same task, each pair criterion of its rubric asked in both orders.

`pairs.json` holds, for each two policies and criterion, how often the first was preferred (a tie is half), with an interval over tasks, and
how often the orders disagreed, which is how much of a judge's preference goes with the place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from etude.core.statistics.bounded import average
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_session
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt, judged_attempt
from etude.evaluate.bench.grading.judge import DISAGREE, Judge
from etude.evaluate.bench.runs.judged_run import judged_outcomes
from etude.evaluate.bench.grading.judgement import Judgement
from etude.evaluate.bench.grading.rubric import Criterion, Rubric
from etude.evaluate.bench.grading.together import gather_all
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs.folder import RunFolder, replace_text
from etude.evaluate.bench.runs.table import BenchResults
from etude.evaluate.bench.suites.suite import Suite

NAME = "pairs.json"
RESAMPLES = 2000


class NoPair(Exception):
    """Two policies that can't be set side by side; says which there are, or what their tasks lack."""


def outcomes_to_compare(table: BenchResults, suite: Suite, first: str, second: str) -> list[tuple[Outcome, Rubric, Criterion]]:
    """Passes that both made, with every pair criterion of their task. Raises NoPair."""
    rows = {row.key: row for row in table.finished}
    keys = [_key(name, rows) for name in (first, second)]
    if keys[0] == keys[1]:
        raise NoPair(f"--pairs {first} {second}: both are {keys[0]}; name two policies")
    passes = min(rows[key].passes for key in keys)
    found = [
        (outcome, rubric, criterion)
        for key, outcome, rubric in judged_outcomes(table, suite)
        if key == keys[0] and outcome.attempt < passes
        for criterion in rubric.criteria
        if criterion.kind == "pair"
    ]
    if not found:
        raise NoPair(
            f'no task of {suite.name} has a rubric with a criterion of kind = "pair": there is nothing to compare'
        )
    return found


async def pair_run(
    folder: RunFolder, table: BenchResults, suite: Suite, judge: Judge, first: str, second: str
) -> dict[str, Any]:
    """Ask what is not asked yet, and write it down. Raises NoPair, PolicyError where the endpoint is at fault: run again then."""
    comparisons = outcomes_to_compare(table, suite, first, second)
    rows = {row.key: row for row in table.finished}
    keys = (_key(first, rows), _key(second, rows))
    names = {row.facts["name"] for row in table.rows} | {row.key for row in table.rows}
    unread: dict[str, str] = {}

    def shown_attempt(key: str, outcome: Outcome) -> JudgedAttempt | None:
        path = folder.session(key, outcome.task_id, outcome.attempt)
        try:
            found, kept = judged_attempt(read_session(path), {}).with_author_names(names), path.with_suffix(".patch")
            return found.with_diff(kept.read_text(encoding="utf-8")) if kept.is_file() else found
        except (OSError, SessionError) as error:
            unread[f"{key} {outcome.task_id}#{outcome.attempt}"] = str(error)
            return None

    async def one(outcome: Outcome, rubric: Rubric, criterion: Criterion) -> tuple[str, str, Judgement] | None:
        a, b = (shown_attempt(key, outcome) for key in keys)
        if a is None or b is None:
            return None
        subject = f"{keys[0]} and {keys[1]} {outcome.task_id}#{outcome.attempt}"
        said = await judge.pair(rubric, criterion, a, b, subject)
        return f"{rubric.name}/{criterion.name}", outcome.task_id, said

    met = [row for row in await gather_all(one(*row) for row in comparisons) if row is not None]
    criteria = {name: _figure([(task, said) for other, task, said in met if other == name]) for name, _, _ in met}
    document = {"a": keys[0], "b": keys[1], "judge": judge.name, "criteria": criteria, "unread": sorted(unread)}
    kept = [row for row in read_pairs(folder) if (row["a"], row["b"], row["judge"]) != (*keys, judge.name)]
    replace_text(folder.root / NAME, json.dumps([*kept, document], indent=1, allow_nan=False) + "\n")
    return document


def read_pairs(folder: RunFolder) -> list[dict[str, Any]]:
    """All that were compared in this folder. Raises ValueError for a file that holds none."""
    path = folder.root / NAME
    if not path.is_file():
        return []
    try:
        return [row for row in json.loads(path.read_text(encoding="utf-8")) if row["a"] and row["b"] and row["judge"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} holds no pairs ({error}); move it away and judge them again") from error


def _key(name: str, rows: dict[str, Any]) -> str:
    """A policy by its key, or by its name where it was asked at one effort. Raises NoPair."""
    found = [key for key in rows if name in (key, rows[key].facts["name"])]
    if len(found) != 1:
        raise NoPair(f"--pairs: {name!r} names {len(found)} policies of this run; there are {', '.join(rows)}")
    return found[0]


def _figure(rows: Sequence[tuple[str, Judgement]]) -> dict[str, Any]:
    tasks: dict[str, list[float]] = {}
    for task, said in rows:
        if said.value is not None:
            tasks.setdefault(task, []).append(said.value)
    counts = {
        "decided": sum(map(len, tasks.values())),
        "not_decided": sum(said.value is None for _, said in rows),
        "ties": sum(said.choice == "tie" for _, said in rows),
        "orders_disagree": sum(said.reason.startswith(DISAGREE) for _, said in rows),
        "tasks": len(tasks),
    }
    if not tasks:
        return {"a_preferred": None, "ci95": None, **counts}
    means = np.array([sum(values) / len(values) for _, values in sorted(tasks.items())])
    mean, ci95 = average({"": means}, {"": 1.0}, resamples=RESAMPLES, seed=0).percent()
    return {"a_preferred": mean, "ci95": ci95, **counts}
