"""`etude bench audit`: are the passes of a bench run what they seem, and did a model know the suite before it was asked?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.bench.judging import JudgeWord, KeyEnv, SuiteWord, closing, suite_of
from etude.cli.option import DryRun, Json, Overrides
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.evaluate.bench.audit.finding import AuditFinding
    from etude.evaluate.bench.runs.folder import RunFolder
    from etude.evaluate.bench.runs.table import BenchResults
    from etude.evaluate.bench.suites.suite import Suite

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The --out of `etude bench run`.")]
Share = Annotated[
    float,
    typer.Option("--sample", min=0.0, max=1.0, help="Share of the unsurprising attempts that the judge reads too."),
]
Seed = Annotated[int, typer.Option("--seed", help="Random seed for sampling attempts.")]
Probe = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        metavar="[NAME=]URL#MODEL",
        help="Model, or checkpoint:DIR, that is asked to write hidden parts from memory; repeatable.",
    ),
]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="Recipe to take the exercises from, if the suite is the exercises.")
]
SHOWN = 20  # flagged passes that a person reads in the terminal; the file has all


def audit(
    folder: Folder,
    judge: JudgeWord = None,
    sample: Share = 0.1,
    seed: Seed = 0,
    probe: Probe = None,
    suite: SuiteWord = None,
    recipe: RecipeName = "laptop",
    overrides: Overrides = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Read passes blind to their outcome for looked-up fixes, tampered tests and special-cased inputs; scores stay as they are."""
    from etude.evaluate.bench.audit.audited_run import audit_run
    from etude.evaluate.bench.grading.judgement import JudgementFile
    from etude.evaluate.bench.run_report import write_report
    from etude.evaluate.bench.runs.folder import RunFolder
    from etude.evaluate.bench.runs.table import read_table
    from etude.evaluate.report.write import write_page

    place = RunFolder(folder)
    table = read_table(place)
    opened, missing = suite_of(table, suite, recipe, overrides)
    if dry_run:
        return _plan(place, table, judge, sample, missing)

    async def go() -> list[AuditFinding]:
        async with closing(judge, JudgementFile(folder / "judgements.jsonl"), key_env, opened) as asked:
            findings = await audit_run(place, table, opened, asked, share=sample, seed=seed)
        for word in probe or ():
            await _probe(word, place, table, opened, key_env, seed)
        return findings

    try:
        findings = run_async(go())
    finally:  # a judge or a probe that ends early takes nothing from what was found before
        write_report(place)
        write_page(folder)
    return _answer(place, table, findings, missing)


def _answer(place: RunFolder, table: BenchResults, findings: list[AuditFinding], note: str) -> Answer:
    """What the run's files hold now. `note`: why the suite's tasks could not be looked at, or nothing."""
    from etude.evaluate.bench.audit.audited_run import audit_part
    from etude.evaluate.bench.audit.probed_run import probed_part

    found = audit_part(place, table) or {"policies": {}, "flagged": [], "wires": {}}
    probed = probed_part(place, table)
    lines = [*_table(found), *_flagged(findings), *_known(probed), *([note] if note else [])]
    return Answer({**found, "note": note, "contamination": probed}, "\n".join(lines))


async def _probe(
    word: str, place: RunFolder, table: BenchResults, suite: Suite | None, key_env: str, seed: int
) -> None:
    from etude.cli.bench.judging import NoSuite, going_on
    from etude.evaluate.bench.audit.probed_run import probe_run
    from etude.pipeline.run.judges import answering

    if suite is None:
        raise NoSuite("--probe needs the suite's tasks: name it with --suite")
    async with answering(word, key_env, "--probe") as policy, going_on("--probe"):
        await probe_run(place, table, suite, policy, seed=seed)


def _plan(place: Any, table: BenchResults, judge: str | None, sample: float, missing: str) -> Answer:
    passes = [(row.key, outcome) for row in table.rows for outcome in row.outcomes]
    there = sum(place.session(key, o.task_id, o.attempt).is_file() for key, o in passes)
    words = f"would read {there} of {len(passes)} passes ({len(passes) - there} left no session) for tripwires"
    words += f", and ask {judge} of {sample:.0%} of them, of the surprising and the flagged" if judge else "; no judge"
    document = {"passes": len(passes), "sessions": there, "judge": judge, "sample": sample, "note": missing}
    return Answer(document, f"{words}\n{missing}".strip())


def _table(document: dict[str, Any]) -> list[str]:
    rows = [f"{'policy':26}{'passes':>7}{'read':>6}{'flagged':>9}{'avg':>8}{'without':>9}{'as failed':>11}"]
    for key, row in document["policies"].items():
        figures = [row[name] for name in ("avg", "avg_without_flagged", "avg_flagged_as_failed")]
        shown = ["-" if one is None else f"{one:.1f}" for one in figures]
        rows.append(
            f"{key:26}{row['passes']:>7}{row['read']:>6}{row['flagged']:>9}{shown[0]:>8}{shown[1]:>9}{shown[2]:>11}"
        )
    return rows


def _flagged(findings: list[AuditFinding]) -> list[str]:
    marked = [one for one in findings if one.status == "flagged"]
    lines = [
        f"  {one.key} {one.task_id}#{one.attempt}: "
        + (
            "; ".join(f"{flag.wire} in {flag.where}: {flag.saw[:80]}" for flag in one.flags[:2])
            or f"judged {one.judged}: {one.reason}"
        )
        for one in marked[:SHOWN]
    ]
    return [*lines, *([f"  … and {len(marked) - SHOWN} more in audit.jsonl"] if len(marked) > SHOWN else [])]


def _known(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{row['policy']} recalls {row['own']:.1%} of what its tasks hide, {row['control']:.1%} of the others' (p {row['p_value']:.4f})"
        + (f"; by name: {', '.join(row['recalled'][:5])}" if row["recalled"] else "")
        for row in found["probes"]
    ]
    asked = ", ".join(found["not_probed"])
    return [*lines, *([f"not probed for memory of the tasks (--probe): {asked}"] if asked else [])]
