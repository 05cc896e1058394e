"""What the verbs that make suites share (make, refresh, import): their options, the plan they show, and the making itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer

if TYPE_CHECKING:
    from etude.evaluate.bench.suites.rubric_drafting import RubricDecision
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.suite_making import SuiteBuildPlan
    from etude.tasks.validation.change import GradingContext
    from etude.tasks.validation.suite_build import Candidate, SuiteDecision

SESSIONS = "From sessions"
TEST_TIMEOUT_S = 600.0

Sessions = Annotated[
    list[Path] | None,
    typer.Option(
        "--from-sessions",
        metavar="DIR",
        rich_help_panel=SESSIONS,
        help="Recorded sessions, ours or other agents'; repeatable.",
    ),
]
Repo = Annotated[
    Path | None,
    typer.Option(
        "--repository",
        metavar="DIR",
        rich_help_panel=SESSIONS,
        help="Repository with the commits. Default: each session's own folder.",
    ),
]
Rubrics = Annotated[
    str | None,
    typer.Option(
        "--rubrics",
        metavar="[NAME=]URL#MODEL",
        rich_help_panel=SESSIONS,
        help="Model that drafts and verifies rubrics: an endpoint or checkpoint:DIR. Without it, no rubrics are made.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option("--test-command", help="Test command if it isn't pytest; {report} is the JUnit file to write."),
]
TestTimeout = Annotated[float, typer.Option("--test-timeout", min=1.0, help="Seconds one run of the tests may take.")]
Count = Annotated[
    int | None,
    typer.Option("--count", min=1, help="Stop when this many tasks are verified. Default: all; 24 exercises."),
]
Version = Annotated[str, typer.Option("--version", help="The suite's version.")]
After = Annotated[
    str | None, typer.Option("--after", metavar="SUITE", help="The version before: its changelog goes on.")
]
Description = Annotated[str, typer.Option("--description", help="Purpose of the suite in one line.")]
Refresh = Annotated[str, typer.Option("--refresh", help="Note on how and when the tasks are renewed.")]
PriceFile = Annotated[Path | None, typer.Option("--prices", metavar="FILE", help="A prices.toml to go with the suite.")]
Requirements = Annotated[
    Path | None,
    typer.Option("--requirements", metavar="FILE", help="Pinned requirements of the projects' tests, in pip's format."),
]
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The suite's folder. Default: suites/NAME.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Candidates proved at a time.")]
RecipeName = Annotated[str, typer.Option("--recipe", help="Recipe to take sandbox and exercise settings from.")]
Plan = Annotated[bool, typer.Option("--dry-run", help="Print the candidates; run nothing and write nothing.")]


def plan_suite(
    name: str,
    facts: dict[str, str],
    words: dict[str, Any],
    out: Path | None,
    after: str | None,
    prices: Path | None,
    requirements: Path | None,
    *,
    limits: dict[str, Any],
    pytest: bool,
    images: dict[str, str] | None = None,
) -> SuiteBuildPlan:
    """The suite to be: everything but its tasks."""
    from etude.evaluate.bench.suites.find import SHELF, read_suite
    from etude.evaluate.bench.suites.manifest import check
    from etude.pipeline.run.suite_making import SuiteBuildPlan

    there(requirements)
    listed = price_list(prices)
    environment = {"pytest": pytest, "requirements": "requirements.txt" if requirements else "", "images": images or {}}
    # A repository takes more than an exercise: its tests, its files, its memory.
    attempt = {"memory_mb": 2048, "max_export_bytes": 64 << 20, "limit_s": 3600.0} if limits else {}
    row = {"name": name, "released": date.today(), "harness": limits, "attempt": attempt, "environment": environment}
    manifest = check(row | facts, f"the suite {name}")
    before = read_suite(after) if after else None
    asked = {"manifest": manifest.model_dump(mode="json", exclude={"released"}), "words": words}
    return SuiteBuildPlan(out or SHELF / name, manifest, asked, listed, requirements, before)


def price_list(file: Path | None):
    """The price list of a file; without one, the suite has none of its own."""
    from etude.evaluate.bench.prices import Prices, read_prices

    there(file)
    return read_prices(file) if file else Prices()


def there(file: Path | None) -> None:
    """Raises FileNotFoundError for a file that was named and is not there."""
    if file is not None and not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")


def size_suite(making: SuiteBuildPlan, count: int | None, concurrency: int, timeout_s: float) -> SuiteBuildPlan:
    """How many tasks are wanted, and how they are proved."""
    from dataclasses import replace

    return replace(making, count=count, concurrency=concurrency, timeout_s=timeout_s)


def read_recipe_named(named: str, overrides: list[str] | None) -> Recipe:
    """The recipe whose sandboxes are used."""
    from etude.pipeline.recipe.read import find_recipe, read_recipe

    return read_recipe([find_recipe(named)], overrides or [])


def plan(
    making: SuiteBuildPlan, candidates: Sequence[str], left_out: Mapping[str, str], whole: int | None = None
) -> Answer:
    """What would be tried, and what would stay of a version before."""
    from etude.evaluate.bench.suites.account import reasons

    whole = len(candidates) if whole is None else whole
    document = {
        "folder": str(making.root),
        "candidates": whole,
        "first": list(candidates),
        "kept": [task.id for task in making.kept],
        "retired": dict(making.retired),
        "rubrics": making.drafting.word if making.drafting else None,
        "left_out": dict(left_out),
    }
    lines = [
        f"would try {whole} candidates and freeze the sound ones as {making.manifest.name}@{making.manifest.version} in {making.root}"
    ]
    lines += [f"  {candidate}" for candidate in list(candidates)[:20]]
    lines += ["  …"] if whole > 20 else []
    lines += [f"{len(making.kept)} tasks of {making.after.version} would stay as they are"] if making.after else []
    return Answer(document, "\n".join([*lines, *reasons("retired", making.retired), *reasons("left out", left_out)]))


def finish_suite(
    recipe: Recipe,
    making: SuiteBuildPlan,
    candidates: Callable[[GradingContext], Sequence[Candidate]],
    left_out: Mapping[str, str],
    *,
    drafts: bool = False,
) -> Answer:
    """Makes the suite and reports progress on stderr. `drafts`: rubrics might have been drafted, so the report says if none were."""
    from etude.evaluate.bench.suites.account import describe_account
    from etude.pipeline.run.suite_making import make_suite

    began = time.monotonic()

    def progress(done: int, whole: int, last: SuiteDecision) -> None:
        word = f"left out: {' '.join(last.reason.split())[:160]}" if last.reason else "sound"
        say(f"{done} of {whole} after {time.monotonic() - began:.0f} s  {last.id}: {word}")

    document = make_suite(recipe, making, candidates, left_out, progress)
    return Answer(document, describe_account(document, drafts=drafts))


def tell_rubric(done: int, whole: int, last: RubricDecision) -> None:
    """One line a task."""
    word = last.silent or f"{len(last.kept)} criteria hold, {len(last.dropped)} dropped"
    say(f"rubric {done} of {whole}  {last.id}: {' '.join(word.split())[:160]}")


def say(line: str) -> None:
    """Print progress on stderr."""
    print(line, file=sys.stderr, flush=True)
