"""`etude session collect`: a teacher tries tasks, and the sessions that passed are kept for SFT."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.bench import asked
from etude.cli.option import DryRun, Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.collecting import CollectionOrder
    from etude.pipeline.run.policy_options import PolicyOptions
    from etude.rollout.campaign import CampaignJob
    from etude.rollout.collect.tries import CollectedAttempt
    from etude.rollout.retry import InfraFault


class CollectError(Exception):
    """The teacher stopped answering."""


Teacher = Annotated[
    str,
    typer.Option(
        "--policy", "-p", metavar="P", help="The teacher: expert, checkpoint:DIR, NAME=URL#MODEL (an endpoint)."
    ),
]
Tasks = Annotated[
    str, typer.Option("--tasks", metavar="DIR|exercises|real", help="A folder of tasks, or a built-in source.")
]
Keep = Annotated[Literal["passed", "all"], typer.Option("--keep", help="Sessions that passed, or all that were held.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the sessions; the same folder resumes.")]
PerTask = Annotated[int, typer.Option("--per-task", min=1, help="Sessions of one task that are kept at most.")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="Maximum number of attempts at one task.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Maximum number of tasks, starting with the first.")]
Split = Annotated[
    Literal["train", "validation", "heldout"],
    typer.Option("--split", help="Split of the tasks; sessions of held-out tasks must not be trained on."),
]
Effort = Annotated[Literal["low", "medium", "high"], typer.Option("--effort", help="Reasoning effort of the teacher.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Attempts in flight.")]
Seed = Annotated[int, typer.Option("--seed", help="Random seed for sampling.")]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="Recipe to take sandboxes, exercises and a checkpoint's limits from.")
]


def collect(
    policy: Teacher, tasks: Tasks, keep: Keep = "passed", out: Out = Path("sessions"), per_task: PerTask = 1,
    tries: Tries = 1, count: Count = None, split: Split = "train", concurrency: Concurrency = 4, seed: Seed = 0,
    effort: Effort = "medium", max_cost: asked.MaxCost = None, prices: asked.PriceFile = None, price_in: asked.PriceIn = None,
    price_out: asked.PriceOut = None, price_cached: asked.PriceCached = None, preset: asked.Preset = None,
    temperature: asked.Temperature = 1.0, context: asked.Context = None, key_env: asked.KeyEnv = "OPENAI_API_KEY",
    timeout: asked.Timeout = 300.0, attempt_limit: asked.Limit = 3600.0, omit: asked.Omit = None,
    max_tokens_field: asked.TokenField = "max_tokens", recipe: RecipeName = DEFAULT_RECIPE, overrides: Overrides = None,
    dry_run: DryRun = False, json: Json = False,
) -> Answer:  # fmt: skip
    """Collect sessions of a teacher at tasks (rejection sampling); stopped at any point, the same command goes on."""
    from datetime import date

    from etude.evaluate.bench.suites.from_tasks import Choice
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.pipeline.run.collecting import CollectionOrder
    from etude.pipeline.run.policy_options import PolicyOptions

    given = asked.prices_given(prices, price_in, price_out, price_cached, date.today())
    read = read_recipe([find_recipe(recipe)], overrides or [])
    order = CollectionOrder(
        policy, tasks, out, keep, per_task, max(tries, per_task), count, concurrency, seed, max_cost, attempt_limit,
        Choice(split=split), given,
    )  # fmt: skip
    options = PolicyOptions(
        (effort,), temperature, preset, context, key_env, timeout, tuple(omit or ()), max_tokens_field, concurrency,
        command="etude session collect",
    )  # fmt: skip
    return _collected(order, read, options, dry_run=dry_run)


def _collected(order: CollectionOrder, recipe: Recipe, options: PolicyOptions, *, dry_run: bool) -> Answer:
    """Asks the teacher, or says what it would be asked. Raises CollectError where it stops answering."""
    from etude.agent.policy.breaker import EndpointGone
    from etude.core.events.log import EventLog
    from etude.pipeline.run import collecting
    from etude.pipeline.run.lock import RunLock

    suite = collecting.suite_of(order, recipe)
    teacher = collecting.teacher(order, suite, recipe, options, EventLog.null())
    if dry_run:
        count = len(suite.ids)
        plan = {
            **collecting.collection_conditions(order, teacher, recipe.tasks.plugins),
            "count": count,
            "most_attempts": count * order.tries,
        }
        return Answer(
            plan, f"would ask {teacher.key} at {count} tasks, {order.tries} times each at most, into {order.folder}"
        )
    with RunLock(order.folder):
        try:
            found, ended = run_async(collecting.collect(order, recipe, suite, teacher, CollectionLines()))
        except EndpointGone as gone:
            raise CollectError(
                f"{teacher.key} stopped answering: {gone}. Run the same command again to go on"
            ) from gone
    document = collecting.account(found, ended)
    return Answer(document, _text(document), 1 if ended.faults else 0)


class CollectionLines:
    """A campaign's observer that prints one line per attempt on stderr."""

    def on_start(self, job: CampaignJob[Any]) -> None: ...
    def on_stop(self, reason: str) -> None: ...

    def on_finish(self, job: CampaignJob[Any], record: CollectedAttempt) -> None:
        outcome = "kept" if record.kept else " ".join(record.why.split())[:120]
        self._print(f"{record.task} try {record.number}: {outcome} ({record.seconds:.0f} s)")

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        self._print(f"{job.key}: a fault of ours: {fault}")

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def _text(document: dict) -> str:
    cost = "" if document["dollars"] is None else f", ${document['dollars']:.4f}"
    lines = [
        f"{document['kept']} sessions of {document['tasks_kept']} tasks kept in {document['folder']}: {document['passed']} of "
        f"{document['tries']} tries passed, {document['duplicates']} left the same files as another{cost}"
    ]
    lines += [f"  a fault of ours, tried again by the next run: {fault[:200]}" for fault in document["faults"].values()]
    lines += [f"stopped: {document['stopped']}"] if document["stopped"] else []
    return "\n".join(lines)
