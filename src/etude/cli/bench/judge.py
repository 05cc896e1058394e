"""`etude bench judge`: judge the attempts of a bench run by their tasks' rubrics, and print the judge's agreement with hand labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.bench.judging import JudgeWord, KeyEnv, NoSuite, SuiteWord, closing, suite_of
from etude.cli.option import DryRun, Json, Overrides
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.evaluate.bench.grading.judge import Judge
    from etude.evaluate.bench.runs.folder import RunFolder
    from etude.evaluate.bench.runs.table import BenchResults
    from etude.evaluate.bench.suites.suite import Suite
    from etude.pipeline.recipe.recipe import Recipe

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The --out of `etude bench run`.")]
Agentic = Annotated[
    bool, typer.Option("--agentic", help="Judge by running: an agent in a fresh sandbox with what the attempt left.")
]
Pairs = Annotated[
    tuple[str, str] | None,
    typer.Option("--pairs", metavar="A B", help="Compare two policies pass by pass, by rubrics' pair criteria."),
]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="Recipe to take the exercises from, if the suite is the exercises.")
]


def judge(
    folder: Folder,
    judge: JudgeWord = None,
    suite: SuiteWord = None,
    recipe: RecipeName = "laptop",
    overrides: Overrides = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    agentic: Agentic = False,
    pairs: Pairs = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Judge what tests can't decide; what was judged before is not asked again, and no test's score changes."""
    from etude.evaluate.bench.run_report import write_report
    from etude.evaluate.bench.runs.folder import RunFolder
    from etude.evaluate.bench.runs.judged_run import judged_outcomes
    from etude.evaluate.bench.runs.table import read_table
    from etude.evaluate.report.write import write_page
    from etude.pipeline.recipe.read import find_recipe, read_recipe

    place = RunFolder(folder)
    table = read_table(place)
    opened, missing = suite_of(table, suite, recipe, overrides)
    if opened is None:
        raise NoSuite(missing)
    if pairs is not None:
        return _pairs(place, table, opened, judge, key_env, pairs, dry_run=dry_run)
    passes = judged_outcomes(table, opened)
    if dry_run or judge is None or not passes:
        return _plan(opened, passes, judge)

    found = read_recipe([find_recipe(recipe)], overrides or []) if agentic else None
    document = run_async(_judged(place, table, opened, judge, key_env, found))
    write_report(place)
    write_page(folder)
    return Answer(document, "\n".join(_lines(document)))


def _plan(suite: Suite, passes: Sequence[tuple[Any, Any, Any]], judge: str | None) -> Answer:
    """What would be asked, and why nothing is."""
    from etude.evaluate.bench.runs.judged_run import LEFT_OUT

    calls = sum(one.kind == "single" for _, _, rubric in passes for one in rubric.criteria)
    plan = f"would ask {judge or 'no judge'}: {calls} criteria of {len(passes)} passes whose tasks have a rubric"
    if judge is None:
        note, text = LEFT_OUT, f"{plan}\n{LEFT_OUT}"
    else:
        note = text = plan if passes else f"no task of {suite.name} has a rubric: there is nothing to judge"
    return Answer({"passes": len(passes), "calls": calls, "judge": judge, "note": note}, text)


async def _judged(
    place: RunFolder, table: BenchResults, suite: Suite, judge: str, key_env: str, running: Recipe | None
) -> dict[str, Any]:
    """The document of a judgement; with a recipe, whose sandboxes are used, by running."""
    from etude.evaluate.bench.grading.judgement import JudgementFile
    from etude.evaluate.bench.runs.judged_run import judge_run

    async with closing(judge, JudgementFile(place.root / "judgements.jsonl"), key_env, suite) as who:
        assert who is not None
        if running is not None:
            return await _by_running(place, table, suite, who, running)
        return (await judge_run(place, table, suite, who)).document


async def _by_running(
    place: RunFolder, table: BenchResults, suite: Suite, judge: Judge, recipe: Recipe
) -> dict[str, Any]:
    """The document of a judgement by an agent in fresh sandboxes."""
    from etude.agent.harness.settings import HarnessSettings
    from etude.evaluate.bench.grading.agentic import AgenticGrader
    from etude.evaluate.bench.runs.judged_run import judge_run
    from etude.sandbox.fleet.open import open_sandboxes

    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        grader = AgenticGrader(judge.policy, pool, judge.file, HarnessSettings.full(), judge.price, suite.adapt)
        return (await judge_run(place, table, suite, judge, grader)).document
    finally:
        await pool.close()


def _pairs(
    place: RunFolder,
    table: BenchResults,
    suite: Suite,
    judge: str | None,
    key_env: str,
    pairs: tuple[str, str],
    *,
    dry_run: bool,
) -> Answer:
    from etude.evaluate.bench.grading.judgement import JudgementFile
    from etude.evaluate.bench.run_report import write_report
    from etude.evaluate.bench.runs.judged_run import LEFT_OUT
    from etude.evaluate.bench.runs.paired_run import outcomes_to_compare, pair_run
    from etude.evaluate.report.write import write_page

    calls = 2 * len(outcomes_to_compare(table, suite, *pairs))
    if dry_run or judge is None:
        words = f"would ask {judge or 'no judge'}: {calls} calls, each pair in both orders"
        note = LEFT_OUT if judge is None else words
        return Answer({"calls": calls, "judge": judge, "note": note}, words if judge else f"{words}\n{note}")

    async def go() -> dict[str, Any]:
        async with closing(judge, JudgementFile(place.root / "judgements.jsonl"), key_env, suite) as who:
            assert who is not None
            return await pair_run(place, table, suite, who, *pairs)

    found = run_async(go())
    write_report(place)
    write_page(place.root)
    lines = [
        f"{name}: {found['a']} preferred over {found['b']} in {_share(row)} of {row['decided']} pairs "
        f"({row['ties']} ties, of them {row['orders_disagree']} where the orders disagree; {row['not_decided']} not decided)"
        for name, row in found["criteria"].items()
    ]
    return Answer(found, "\n".join([*lines, *[f"not read: {one}" for one in found["unread"]]]))


def _share(row: dict[str, Any]) -> str:
    return "none" if row["a_preferred"] is None else f"{row['a_preferred']:.1f}% {row['ci95']}"


def _lines(document: dict[str, Any]) -> list[str]:
    agreement = {row["criterion"]: row for row in document["agreement"] if row["judge"] == document["judge"]}
    lines = []
    for key, criteria in document["policies"].items():
        for name, row in criteria.items():
            figure = "not judged" if row["avg"] is None else f"{row['avg']:5.1f} {row['ci95']}"
            silent = f", {row['not_decided']} not decided" if row["not_decided"] else ""
            lines.append(
                f"{key:24} {name:32} {figure}{silent}  {_agreement_of_judge(agreement.get(document['labelled'].get(name)))}"
            )
    lines += [f"agreement with hand labels, {_agreement(row)}" for row in document["agreement"]]
    lines += [f"among the readers themselves, {_agreement(row)}" for row in document["readers"]]
    return [*lines, *[f"not read: {one}" for one in document["unread"]], _cost(document["cost"])]


def _cost(cost: dict[str, Any]) -> str:
    dollars = "no prices" if cost["dollars"] is None else f"${cost['dollars']:.4f}"
    return f"judging: {cost['tries']} calls, {cost['input_tokens']} tokens in, {cost['output_tokens']} out, {dollars}"


def _agreement_of_judge(row: dict[str, Any] | None) -> str:
    return "(no hand labels of this criterion: agreement not known)" if row is None else f"({_words(row)})"


def _agreement(row: dict[str, Any]) -> str:
    return f"{row['criterion']} by {row['judge']}: {_words(row)}"


def _words(row: dict[str, Any]) -> str:
    from etude.evaluate.bench.grading.agreement import Agreement

    return Agreement(**row).words()
