"""Makes a suite from sessions, tasks or imports: opens the sandboxes, proves the candidates, freezes what is sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.agent.policy.protocol import PolicyError
from etude.core.events.stopping import run_async
from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.grading.endpoint import price_of
from etude.evaluate.bench.prices import Prices, shipped_prices
from etude.evaluate.bench.suites.account import account
from etude.evaluate.bench.suites.environment import Equipment
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.evaluate.bench.suites.rubric_drafting import DraftedRubrics, Others, RubricDrafter
from etude.evaluate.bench.suites.rubric_drafting import RubricProgress as ToldOfRubric
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.judges import answering
from etude.pipeline.run.lock import RunLock
from etude.sandbox.fleet.open import open_sandboxes
from etude.sandbox.protocol import Machines
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task
from etude.tasks.validation.change import GradingContext
from etude.tasks.validation.suite_build import Candidate, SuiteBuild, SuiteDecision, make_tasks


@dataclass(frozen=True)
class Drafting:
    """Who drafts rubrics, `[NAME=]URL#MODEL` or `checkpoint:DIR`, and the further solutions of a task."""

    word: str
    key_env: str
    others: Others
    progress: ToldOfRubric


@dataclass(frozen=True)
class SuiteBuildPlan:
    """A suite to be, whatever it is made of. `asked` tells this making from another into the same place.

    `kept` are tasks of the version before, taken over as they are, with their `rubrics`; `retired` those that are not.
    """

    root: Path
    manifest: SuiteManifest
    asked: dict[str, Any]
    prices: Prices = Prices()
    requirements: Path | None = None
    after: FolderSuite | None = None
    count: int | None = None
    concurrency: int = 2
    timeout_s: float = 600.0
    kept: Sequence[Task] = ()
    rubrics: Mapping[str, str] = field(default_factory=dict)
    retired: Mapping[str, str] = field(default_factory=dict)
    drafting: Drafting | None = None


SuiteProgress = Callable[[int, int, SuiteDecision], None]


def make_suite(
    recipe: Recipe,
    making: SuiteBuildPlan,
    candidates: Callable[[GradingContext], Sequence[Candidate]],
    left_out: Mapping[str, str],
    progress: SuiteProgress,
) -> dict[str, Any]:
    """What `account` tells of it. Raises SuiteError; InfraError leaves the work where it is, and the same command goes on.
    Raises RunBusy where another process makes the same suite."""
    workshop = SuiteBuild(making.root, making.asked)
    with RunLock(workshop.folder):
        return _worked(recipe, making, workshop, candidates, left_out, progress)


def _worked(
    recipe: Recipe,
    making: SuiteBuildPlan,
    workshop: SuiteBuild,
    candidates: Callable[[GradingContext], Sequence[Candidate]],
    left_out: Mapping[str, str],
    progress: SuiteProgress,
) -> dict[str, Any]:
    fresh, decided = run_async(_made(recipe, making, workshop, candidates, progress))
    if not fresh and not (making.kept and making.retired):
        workshop.close()
        raise SuiteError(_nothing(making, decided, left_out))
    drawn = _drawn(making, fresh, workshop)
    tasks = [*making.kept, *fresh]
    suite = freeze(
        making.root,
        making.manifest,
        tasks,
        price_list=making.prices,
        rubrics={**making.rubrics, **(drawn.texts if drawn else {})},
        drafts=drawn.account if drawn else None,
        requirements=making.requirements,
        projects=sorted({project for task in tasks if (project := _project(task))}),
        after=making.after,
        retired=making.retired,
    )
    workshop.close()
    return account(suite, decided, left_out, making.retired, drawn.account if drawn else None)


def _nothing(making: SuiteBuildPlan, decided: Sequence[SuiteDecision], left_out: Mapping[str, str]) -> str:
    """Why there is no suite, with every reason."""
    reasons = [f"{d.id}: {d.reason}" for d in decided] + [f"{name}: {reason}" for name, reason in left_out.items()]
    head = f"no task was taken of {len(decided)} candidates, so there is no suite"
    if making.kept:
        head = f"no task was taken of {len(decided)} candidates and none is retired, so there is no new version"
    return "\n  ".join([head, *reasons])


def _drawn(making: SuiteBuildPlan, tasks: Sequence[Task], workshop: SuiteBuild) -> DraftedRubrics | None:
    """Rubrics for new tasks, where somebody is named to draft them. Raises SuiteError; the tasks are proved and kept by then."""
    drafting = making.drafting
    if drafting is None:
        return None
    price_list = Prices(making.prices.entries, beneath=shipped_prices())

    async def draw() -> DraftedRubrics:
        async with answering(drafting.word, drafting.key_env, "--rubrics") as policy:
            drawer = RubricDrafter(policy, workshop.folder, price_of(price_list, policy.name))
            return await drawer.draft_all(tasks, drafting.others, drafting.progress)

    try:
        return run_async(draw())
    except PolicyError as error:
        raise SuiteError(
            f"who drafts the rubrics stopped answering ({error}); the {len(tasks)} tasks and the rubrics so far are kept in "
            f"{workshop.folder}: run the same command again to go on, or without --rubrics to do without them"
        ) from error


async def _made(
    recipe: Recipe,
    making: SuiteBuildPlan,
    workshop: SuiteBuild,
    candidates: Callable[[GradingContext], Sequence[Candidate]],
    progress: SuiteProgress,
) -> tuple[list[Task], list[SuiteDecision]]:
    pool: Machines = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        bench = bench_of(making, pool)
        return await make_tasks(
            candidates(bench), workshop, count=making.count, concurrency=making.concurrency, progress=progress
        )
    finally:
        await pool.close()


def bench_of(making: SuiteBuildPlan, pool: Machines) -> GradingContext:
    """Candidates run where the suite's tasks will: the requirements lie where the person has them, the rest is the manifest's."""
    environment = making.manifest.environment
    root = making.root
    if making.requirements is not None:
        root = making.requirements.parent
        environment = environment.model_copy(update={"requirements": making.requirements.name})
    equipment = Equipment(environment, root, default_cache())
    equipment.prepare()
    grader = CommandsGrader(lambda spec, task: equipment.fit(spec, task.id, task.metadata))
    return GradingContext(pool, grader, making.timeout_s)


def _project(task: Task) -> str:
    """The package or repository that a task is of."""
    return str(task.metadata.get("project") or task.metadata.get("package") or "")
