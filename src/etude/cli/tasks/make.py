"""`etude tasks make`: a folder of proved tasks from a list of projects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import DryRun, Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.tasks import agents as asked

if TYPE_CHECKING:
    from etude.tasks.generate.generator import Generator
    from etude.tasks.generate.protocols import GenerationProgress, GenerationRequest
    from etude.tasks.splits import Shares


class TaskMakeError(Exception):
    """What was asked for names something that there is not."""


Projects = Annotated[
    Path, typer.Option("--projects", metavar="FILE", help="The list of projects, e.g. recipes/projects.toml.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of tasks; the same folder goes on.")]
Only = Annotated[
    list[str] | None, typer.Option("--project", metavar="NAME", help="Only this project of the list; repeatable.")
]
Generators = Annotated[
    list[str] | None,
    typer.Option(
        "--generators",
        metavar="NAME",
        help="Only this generator, by name or MODULE:NAME; repeatable. Default: all built-in ones.",
    ),
]
Sessions = Annotated[
    list[Path] | None,
    typer.Option("--sessions", metavar="PATH", help="Recorded sessions at the list's local repositories; repeatable."),
]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Stop when the folder holds this many tasks.")]
PerCategory = Annotated[
    int | None, typer.Option("--per-category", min=1, help="Maximum number of tasks of one category.")
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", metavar="MINUTES", min=0.0, help="Time budget in minutes; no new work starts after it."),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Installs and candidates at a time.")]
Seed = Annotated[
    int, typer.Option("--seed", help="Random seed; another seed makes other tasks from the same projects.")
]
Timeout = Annotated[float, typer.Option("--test-timeout", min=1.0, help="Seconds one run of the tests may take.")]
WriterWord = Annotated[
    str | None,
    typer.Option(
        "--writer",
        metavar="[NAME=]URL#MODEL",
        help="Model that writes the prompts, which are checked. Without it, rules write them.",
    ),
]
Validation = Annotated[
    float, typer.Option("--validation", min=0.0, max=1.0, help="Share of projects, or modules, for validation.")
]
Heldout = Annotated[
    float, typer.Option("--heldout", min=0.0, max=1.0, help="Share of projects, or modules, that is held out.")
]
SplitBy = Annotated[
    Literal["auto", "project", "module"],
    typer.Option(
        "--split-by",
        help="Unit of the splits: whole projects, or modules of each. auto uses modules if there are fewer than four projects.",
    ),
]
CommitEnvironments = Annotated[
    int,
    typer.Option(
        "--commit-environments",
        min=0,
        help="Commits of each project that the generator history may install where the project's own environment does not run their tests.",
    ),
]
KeyEnv = Annotated[
    str, typer.Option("--key-env", help="The variable that holds the key of writer, builder, setter and judge.")
]
RecipeName = Annotated[str, typer.Option("--recipe", help="Recipe to take sandbox settings from.")]


def make(
    projects: Projects, out: Out, project: Only = None, generators: Generators = None, sessions: Sessions = None,
    count: Count = None, per_category: PerCategory = None, budget: Budget = None, jobs: Jobs = 2, seed: Seed = 0,
    timeout: Timeout = 120.0, validation: Validation = 0.1, heldout: Heldout = 0.1, split_by: SplitBy = "auto",
    builder: asked.Builders = None, setter: asked.Setter = None, judge: asked.OutputJudge = None,
    max_cost: asked.Dollars = None, prices: asked.PriceList = None, writer: WriterWord = None,
    commit_environments: CommitEnvironments = 4, key_env: KeyEnv = "OPENAI_API_KEY", recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None, dry_run: DryRun = False, json: Json = False,
) -> Answer:  # fmt: skip
    """Fetch, install, generate, prove and word tasks, turn by turn over categories and projects; stopped at any point, the same command
    goes on. A project's tasks are of one split, by its name; forks and copies go where the project went. `report.json` in the folder
    holds installs, yields and costs. With several --builder a project is installed by the first of them that can."""
    from etude.core.plugins import is_import_path, source_digests
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.pipeline.run.lock import RunLock
    from etude.pipeline.run.task_making import PromptWriter
    from etude.pipeline.run.task_making import make as made
    from etude.tasks.generate.generators.registry import bound
    from etude.tasks.generate.protocols import GenerationRequest
    from etude.tasks.generate.run.report import format_report
    from etude.tasks.generate.sources.projects import read_projects
    from etude.tasks.splits import Shares

    listed = {one.name: one for one in read_projects(projects)}
    names = _known(project, listed, "--project", str(projects))
    paths = list(filter(is_import_path, generators or ()))
    chosen = bound(_chosen(generators, paths), listed, sessions or ())
    shares = Shares(validation, heldout, split_by)
    read = read_recipe([find_recipe(recipe)], overrides or [])
    order = GenerationRequest(
        names, chosen, count, per_category, None if budget is None else budget * 60, jobs, seed, timeout,
        source_digests(paths),
    )  # fmt: skip
    if dry_run:
        return _plan(order, shares, out, commit_environments)
    with RunLock(out):
        who = asked.agents(builder, setter, judge, key_env, dollars=max_cost, prices=prices)
        words = PromptWriter(writer, key_env) if writer else None
        document = made(read, order, listed, out, _tell, words, shares, who, commit_environments)
    return Answer(document, format_report(document), 1 if document["faults"] else 0)


def _chosen(wanted: list[str] | None, paths: list[str]) -> dict[str, Generator]:
    """By name, those that were asked for: built-in ones, and those at import paths. Raises TaskMakeError, PluginError."""
    from etude.tasks.generate.generators.registry import GENERATORS, custom_generator

    named = [name for name in wanted or () if name not in paths]
    known = _known(named or None, GENERATORS, "--generators", "the registry") if named or not paths else []
    own = [custom_generator(path) for path in paths]
    return {name: GENERATORS[name] for name in known} | {one.name: one for one in own}


def _plan(order: GenerationRequest, shares: Shares, out: Path, commit_environments: int) -> Answer:
    """What would be made."""
    generators = {name: one.category for name, one in order.generators.items()}
    asked_for = {
        "count": order.count,
        "per_category": order.per_category,
        "budget_s": order.budget_s,
        "jobs": order.jobs,
        "seed": order.seed,
        "validation": shares.validation,
        "heldout": shares.heldout,
        "split_by": shares.by,
        "commit_environments": commit_environments,
    }
    plan = {"projects": list(order.projects), "generators": generators, "out": str(out), "asked": asked_for}
    lines = [f"would make tasks of {len(order.projects)} projects in {out}, {order.jobs} at a time"]
    lines += [f"  {name}: {category}" for name, category in generators.items()]
    return Answer(plan, "\n".join(lines))


def _known(wanted: list[str] | None, there: object, option: str, where: str) -> list[str]:
    known = list(there)  # type: ignore[call-overload]
    if strange := [name for name in wanted or () if name not in known]:
        raise TaskMakeError(
            f"{option} {strange[0]}: {where} has none of that name; it has {', '.join(sorted(known)) or 'nothing'}"
        )
    return [name for name in known if not wanted or name in wanted]


def _tell(progress: GenerationProgress) -> None:
    """One line a decision: how far it is, and the last."""
    goal = f" of {progress.count}" if progress.count else ""
    state = f"{progress.taken}{goal} tasks, {progress.tried} tried, {progress.installed + progress.discarded}/{progress.projects} projects"
    print(f"[{state}] {progress.last}", file=sys.stderr, flush=True)
