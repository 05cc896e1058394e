"""The judged part of a bench run: every pass by its task's rubric, next to the tests' scores and never mixed into them.

`judgements.jsonl` holds the judgements, `judged.json` their summary: for each policy and criterion the mean with its interval, how many
passes were not decided, and the judge's agreement with hand labels, which belongs next to every figure of the judge, as does that of
readers with each other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from etude.core.statistics.bounded import average
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_session
from etude.evaluate.bench.grading.agentic import AgenticGrader
from etude.evaluate.bench.grading.agreement import Agreement, agreement, by_judge, by_rule, readers
from etude.evaluate.bench.grading.judged_attempt import judged_attempt
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judgement import combine_judgements
from etude.evaluate.bench.grading.judgement import Judgement, cost_of
from etude.evaluate.bench.grading.labels import label_rubric, read_labels
from etude.evaluate.bench.grading.rubric import Rubric, read_rubric
from etude.evaluate.bench.grading.together import gather_all
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs.folder import RunFolder, replace_text
from etude.evaluate.bench.runs.table import BenchResults
from etude.evaluate.bench.suites.suite import Suite
import re
from collections.abc import Mapping
from etude.tasks.content import like


# The files that an attempt left, out of those it began with and its kept patch: what a grader that runs things needs.


_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_END = "\\ No newline at end of file"
NOWHERE = "/dev/null"


class PatchMismatch(ValueError):
    """A patch that does not fit the files, or holds a file that is no text; names the path."""


def apply_patch(before: Mapping[str, str], patch: str) -> dict[str, bytes]:
    """The files after a patch of `runs.kept`: complete hunks, exact lines. Raises PatchMismatch."""
    files = {path: text.encode() for path, text in before.items()}
    lines = patch.split("\n")[:-1] if patch else []
    at = 0
    while at < len(lines):
        if (name := _removed(lines[at])) in before:
            files.pop(name, None)
            at += 1
            continue
        if lines[at].startswith("Binary file "):
            raise PatchMismatch(f"{lines[at]}: what is no text was not kept")
        if not lines[at].startswith("--- ") or at + 1 >= len(lines) or not lines[at + 1].startswith("+++ "):
            raise PatchMismatch(f"line {at + 1} of the patch is no header of a file: {lines[at][:80]!r}")
        old, new = lines[at][4:].removeprefix("a/"), lines[at + 1][4:].removeprefix("b/")
        path = old if new == NOWHERE else new
        if old != NOWHERE and old not in before:
            raise PatchMismatch(f"{path}: the patch changes a file that is not there")
        text, at = _patched(before.get(path, "") if old != NOWHERE else "", lines, at + 2, path)
        if new == NOWHERE:
            files.pop(path, None)
        else:
            files[path] = like(before.get(path), text).encode()
    return files


def _removed(line: str) -> str:
    """The file that is no text and that a line says was removed; empty if it says something else."""
    prefix, suffix = "Binary file ", " removed"
    return line[len(prefix) : -len(suffix)] if line.startswith(prefix) and line.endswith(suffix) else ""


def _patched(text: str, lines: list[str], at: int, path: str) -> tuple[str, int]:
    """The file after its hunks, and the line of the patch behind them."""
    source, out, done = text.splitlines(keepends=True), [], 0
    while at < len(lines) and (hunk := _HUNK.match(lines[at])) is not None:
        olds, news = (int(hunk[place]) if hunk[place] is not None else 1 for place in (2, 4))
        start = int(hunk[1]) - (olds > 0)  # an empty range names the line before it
        out += source[done:start]
        done, at = start, at + 1
        while olds > 0 or news > 0:
            if at >= len(lines):
                raise PatchMismatch(f"{path}: the patch ends within a hunk")
            sign, body = lines[at][:1], f"{lines[at][1:]}\n"
            if at + 1 < len(lines) and lines[at + 1] == _NO_END:
                body = body[:-1]
                at += 1
            at += 1
            if sign in (" ", "-"):
                if done >= len(source) or source[done] != body:
                    raise PatchMismatch(
                        f"{path}:{done + 1}: the patch does not fit; the suite is another than the run's"
                    )
                done, olds = done + 1, olds - 1
            news -= sign in (" ", "+")
            out += [body] if sign in (" ", "+") else []
    return "".join([*out, *source[done:]]), at


NAME = "judged.json"
# Agentic graders at once: each has a sandbox for every criterion.
GRADERS_AT_ONCE = 2
LEFT_OUT = "judged parts are left out: no judge was asked (etude bench judge DIR --judge URL#MODEL)"


@dataclass
class JudgingResult:
    """What came of it. `unread`: passes without a session that can be read, by name."""

    document: dict[str, Any]
    unread: dict[str, str] = field(default_factory=dict)


def judged_outcomes(table: BenchResults, suite: Suite) -> list[tuple[str, Outcome, Rubric]]:
    """Passes whose task has a rubric, by key, task and pass."""
    files = {task_id: suite.rubric(task_id) for task_id in table.shared["tasks"]}
    rubrics = {task_id: read_rubric(path) for task_id, path in files.items() if path is not None}
    return [
        (row.key, outcome, rubrics[outcome.task_id])
        for row in table.rows
        for outcome in row.outcomes
        if outcome.task_id in rubrics
    ]


async def judge_run(
    folder: RunFolder,
    table: BenchResults,
    suite: Suite,
    judge: Judge,
    agentic: AgenticGrader | None = None,
    *,
    resamples: int = 2000,
) -> JudgingResult:
    """Judge what is not judged yet, and write `judged.json`. Raises PolicyError where the endpoint is at fault; run again then.

    With `agentic` the attempts' files are laid before an agent that runs them, and the judge is used for its agreement only.
    """
    judging = _PassJudging(folder, table, suite, judge, agentic)
    passes = judged_outcomes(table, suite)
    judgements = await gather_all(judging.judge_pass(*row) for row in passes)
    by_key: dict[str, list[tuple[Outcome, list[Judgement]]]] = {}
    for (key, outcome, _), rows in zip(passes, judgements, strict=True):
        by_key.setdefault(key, []).append((outcome, rows))
    rubrics = {rubric.name: rubric for _, _, rubric in passes}
    document = {
        "judge": judge.name,
        "agentic": agentic is not None,
        "rubrics": {name: rubric.digest for name, rubric in rubrics.items()},
        "policies": {key: _criteria(rows, resamples) for key, rows in by_key.items()},
        "totals": {key: _totals(rows, rubrics, resamples) for key, rows in by_key.items()},
        "labelled": _labelled(rubrics.values()),
        "agreement": [asdict(one) for one in await agreements(judge)],
        "readers": [asdict(one) for one in ceilings()],
        "cost": asdict(cost_of(judge.file.rows)),
        "unread": sorted(judging.unread),
    }
    replace_text(folder.root / NAME, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return JudgingResult(document, judging.unread)


class _PassJudging:
    """Judges single passes; `unread` collects those whose session or patch can't be read, with the reason."""

    def __init__(
        self, folder: RunFolder, table: BenchResults, suite: Suite, judge: Judge, agentic: AgenticGrader | None
    ) -> None:
        self._folder, self._suite, self._judge, self._agentic = folder, suite, judge, agentic
        self._names = {row.facts["name"] for row in table.rows} | {row.key for row in table.rows}
        self._slots = asyncio.Semaphore(GRADERS_AT_ONCE)
        self.unread: dict[str, str] = {}

    async def judge_pass(self, key: str, outcome: Outcome, rubric: Rubric) -> list[Judgement]:
        path = self._folder.session(key, outcome.task_id, outcome.attempt)
        subject, kept = f"{key} {outcome.task_id}#{outcome.attempt}", path.with_suffix(".patch")
        agentic = self._agentic
        try:
            shown_attempt = judged_attempt(read_session(path), {}).with_author_names(self._names)
            patch = kept.read_text(encoding="utf-8") if kept.is_file() or agentic else None
            shown_attempt = shown_attempt if patch is None else shown_attempt.with_diff(patch)
            files = apply_patch(self._suite.task(outcome.task_id).files, patch) if agentic and patch is not None else {}
        except (OSError, SessionError, PatchMismatch) as error:
            self.unread[subject] = str(error)
            return []
        if agentic is None:
            return await self._judge.rubric(rubric, shown_attempt, subject)
        async with self._slots:
            return await agentic.rubric(rubric, shown_attempt, files, subject, outcome.task_id)


async def agreements(judge: Judge | None) -> list[Agreement]:
    """Of the judge on both labelled criteria, and of the free claim checker on the one that it decides."""
    rubric = label_rubric()
    found = [
        await agreement(judge.name, by_judge(judge, rubric, one), read_labels(one), one)
        for one in rubric.criteria
        if judge is not None
    ]
    claims = rubric.criterion("claims")
    return [*found, await agreement("rule", by_rule, read_labels(claims), claims)]


def ceilings() -> list[Agreement]:
    """Of those who labelled, with each other: the most that a judge's agreement can be held to."""
    return [found for one in label_rubric().criteria for found in readers(read_labels(one), one)]


def _labelled(rubrics: Iterable[Rubric]) -> dict[str, str]:
    """By `rubric/criterion`, the criterion with hand labels that asks the same: another question under its name has no agreement."""
    known = {(one.question, one.choices, one.sees): one.name for one in label_rubric().criteria}
    return {
        f"{rubric.name}/{one.name}": known[one.question, one.choices, one.sees]
        for rubric in rubrics
        for one in rubric.criteria
        if (one.question, one.choices, one.sees) in known
    }


def judged_part(folder: RunFolder) -> dict[str, Any]:
    """What the report says of it: the file, or that there is no judge."""
    path = folder.root / NAME
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"judge": None, "why": LEFT_OUT}


def _criteria(rows: Sequence[tuple[Outcome, list[Judgement]]], resamples: int) -> dict[str, Any]:
    """By `rubric/criterion`: the mean over tasks of the passes that were decided, in percent."""
    found: dict[str, dict[str, list[float]]] = {}
    silent: dict[str, int] = {}
    for outcome, judgements in rows:
        for one in judgements:
            name = f"{one.rubric}/{one.criterion}"
            tasks, silent[name] = found.setdefault(name, {}), silent.get(name, 0) + (one.value is None)
            if one.value is not None:
                tasks.setdefault(outcome.task_id, []).append(one.value)
    return {name: _figure(tasks, silent[name], resamples) for name, tasks in sorted(found.items())}


def _totals(
    rows: Sequence[tuple[Outcome, list[Judgement]]], rubrics: Mapping[str, Rubric], resamples: int
) -> dict[str, Any]:
    """By rubric: the weighted mean over criteria, of the passes in which all were decided."""
    found: dict[str, dict[str, list[float]]] = {}
    silent: dict[str, int] = {}
    for outcome, judgements in rows:
        for name in sorted({one.rubric for one in judgements}):
            total = combine_judgements(rubrics[name], judgements).total
            tasks, silent[name] = found.setdefault(name, {}), silent.get(name, 0) + (total is None)
            if total is not None:
                tasks.setdefault(outcome.task_id, []).append(total)
    return {name: _figure(tasks, silent[name], resamples) for name, tasks in sorted(found.items())}


def _figure(tasks: Mapping[str, Sequence[float]], silent: int, resamples: int) -> dict[str, Any]:
    decided = sum(map(len, tasks.values()))
    if not tasks:
        return {"avg": None, "ci95": None, "decided": 0, "not_decided": silent, "tasks": 0}
    means = np.array([sum(values) / len(values) for _, values in sorted(tasks.items())])
    mean, ci95 = average({"": means}, {"": 1.0}, resamples=resamples, seed=0).percent()
    return {"avg": mean, "ci95": ci95, "decided": decided, "not_decided": silent, "tasks": len(tasks)}
