"""`etude bench run`: a suite asked of policies, as often as it takes, in the one harness; resumable, bounded in money and at once."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from etude.cli.answer import Answer
from etude.cli.option import DryRun, Json, Overrides

if TYPE_CHECKING:
    from etude.bench.suites.suite import Suite
    from etude.recipe.recipe import Recipe
    from etude.run.entrants import Asking
    from etude.run.suite_bench import Order
    from etude.trace.entry import Effort


class BenchError(Exception):
    """What was asked for makes no sense, or ended early."""


class PresetName(StrEnum):
    nano = "nano"
    full = "full"
    search_replace = "search_replace"
    patch = "patch"
    minimal = "minimal"


EFFORTS = ("low", "medium", "high")

Named = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's folder, or exercises, or real.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="P",
        help="expert, nop, cheats, cheat:NAME, checkpoint:DIR, NAME=URL#MODEL (an OpenAI-compatible endpoint); repeatable.",
    ),
]  # fmt: skip
Only = Annotated[bool, typer.Option("--only", help="Just these: leave out nop, cheats and expert.")]
Efforts = Annotated[str, typer.Option("--effort", metavar="E[,E…]", help="low, medium, high: each is asked apart.")]
Passes = Annotated[int, typer.Option("--passes", min=1, help="Attempts at each task by each policy and effort.")]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost", metavar="DOLLARS", min=0.0, help="Start no attempt that may pass it, all runs of --out."
    ),
]
PriceFile = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="A prices.toml that counts before the suite's own.")
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Attempts in flight.")]
Tasks = Annotated[int | None, typer.Option("--tasks", min=1, help="At most this many tasks, from the suite's first.")]
Chosen = Annotated[
    list[str] | None, typer.Option("--task", metavar="GLOB", help="Tasks whose ids match; repeatable. Default: all.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of sampling and bootstrap.")]
Folder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Results; the same folder goes on. Default: runs/bench/SUITE/."),
]
RecipeName = Annotated[str, typer.Option("--recipe", help="Whose exercises, sandboxes and nano limits.")]
Preset = Annotated[PresetName | None, typer.Option("--preset", help="Tools and prompts of endpoints and checkpoints.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="Sampling temperature.")]
Context = Annotated[int | None, typer.Option("--context", min=4096, help="The models' window in tokens.")]
KeyEnv = Annotated[
    str, typer.Option("--key-env", metavar="VARIABLE", help="The environment variable with the API key.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds to wait for one answer.")]
Limit = Annotated[float, typer.Option("--attempt-limit", min=10.0, help="Seconds that one attempt may take.")]
Omit = Annotated[list[str] | None, typer.Option("--omit", metavar="FIELD", help="A field the endpoints refuse.")]
TokenField = Annotated[str, typer.Option("--max-tokens-field", help="Its name at the endpoints.")]


def run(
    suite: Named,
    policies: Policies = None,
    only: Only = False,
    effort: Efforts = "medium",
    passes: Passes = 1,
    max_cost: MaxCost = None,
    prices: PriceFile = None,
    concurrency: Concurrency = 4,
    tasks: Tasks = None,
    task: Chosen = None,
    seed: Seed = 7,
    out: Folder = None,
    recipe: RecipeName = "laptop",
    overrides: Overrides = None,
    preset: Preset = None,
    temperature: Temperature = 1.0,
    context: Context = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    timeout: Timeout = 300.0,
    attempt_limit: Limit = 3600.0,
    omit: Omit = None,
    max_tokens_field: TokenField = "max_tokens",
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Ask a suite of policies, several passes each; nop, cheating agents and the reference stand in every table.

    Stopped at any point, the same command goes on; a budget that is reached is said, and a higher one goes on.
    """
    from etude.bench.suites.prices import Prices, read_prices
    from etude.events.log import EventLog
    from etude.recipe.read import find_recipe, read_recipe
    from etude.run.entrants import Asking, entrants
    from etude.run.suite_bench import Order
    from etude.run.suites import open_suite

    found = read_recipe([find_recipe(recipe)], [*(overrides or []), f"bench.seed={seed}"])
    opened = open_suite(suite, found, tasks=tasks)
    asking = Asking(
        _efforts(effort), temperature, preset.value if preset else None, context, key_env, timeout, tuple(omit or ()),
        max_tokens_field, concurrency,
    )  # fmt: skip
    if prices is not None and not prices.is_file():
        raise BenchError(f"--prices {prices}: there is no such file")
    folder = out or Path("runs") / "bench" / opened.name
    log = EventLog.null() if dry_run else EventLog(folder / "events.jsonl")
    order = Order(
        opened, _ids(opened, tasks, task), entrants(policies or [], opened, found, asking, log, only=only), folder, passes,
        concurrency, seed, found.bench.resamples, max_cost, attempt_limit, read_prices(prices) if prices else Prices(),
    )  # fmt: skip
    if not order.entrants:
        raise BenchError("nobody to ask: name a --policy, or leave out --only")
    return _plan(order, asking) if dry_run else _go(found, order, log)


def _efforts(text: str) -> tuple[Effort, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if strange := [word for word in words if word not in EFFORTS]:
        raise BenchError(f"--effort {text}: there is no effort {strange[0]!r}; there are {', '.join(EFFORTS)}")
    if not words:
        raise BenchError(f"--effort names none; there are {', '.join(EFFORTS)}")
    return cast("tuple[Effort, ...]", tuple(dict.fromkeys(words)))


def _ids(suite: Suite, most: int | None, globs: list[str] | None) -> list[str]:
    ids = [name for name in suite.ids if not globs or any(fnmatchcase(name, glob) for glob in globs)]
    if not ids:
        raise BenchError(
            f"no task of {suite.name} matches --task {' '.join(globs or [])}; it has {', '.join(suite.ids[:5])} …"
        )
    return ids[:most]


def _plan(order: Order, asking: Asking) -> Answer:
    from etude.bench.suites.suite import label
    from etude.run.suite_bench import facts

    known = {entrant.key: facts(order, entrant) for entrant in order.entrants}
    attempts = len(order.ids) * order.passes * len(order.entrants)
    document = {
        "suite": label(order.suite),
        "digest": order.suite.digest,
        "tasks": list(order.ids),
        "policies": [
            {name: row[name] for name in ("name", "effort", "kind", "model", "harness", "price")}
            for row in known.values()
        ],
        "passes": order.passes,
        "attempts": attempts,
        "max_cost_dollars": order.max_cost,
        "out": str(order.folder),
    }
    lines = [
        f"would ask {label(order.suite)}: {len(order.ids)} tasks x {order.passes} passes of {len(order.entrants)} policies, "
        f"{attempts} attempts, {order.concurrency} at a time, into {order.folder}",
        *(f"  {key:24} {row['kind']:10} harness {row['harness']}  {_priced(row)}" for key, row in known.items()),
    ]
    return Answer(document, "\n".join(lines))


def _priced(row: dict[str, Any]) -> str:
    price = row["price"]
    if price is None:
        return "no price" if row["model"] else "free"
    return f"${price['input']:g} in, ${price['output']:g} out per million tokens, since {price['since']}"


def _go(recipe: Recipe, order: Order, log: Any) -> Answer:
    from etude.events.live import LiveView
    from etude.policy.breaker import EndpointGone
    from etude.run.lock import RunLock
    from etude.run.suite_bench import bench_suite

    with RunLock(order.folder), LiveView(order.folder / "events.jsonl"):
        try:
            document, asked = asyncio.run(bench_suite(recipe, order, log))
        except EndpointGone as gone:
            raise BenchError(f"the endpoint stopped answering: {gone}. Run the same command again to go on") from gone
        finally:
            log.close()
    from etude.cli.bench.table import table

    left = [found for found in asked if found.missing]
    told = [
        f"{found.key}: {found.missing} attempts are missing: "
        + (found.stopped or f"faults of ours, the last: {list(found.faults.values())[-1]}. Run the same command again")
        for found in left
    ]
    text = "\n".join([table(document), *told, f"report: {order.folder / 'report.html'}"])
    return Answer(document, text, 1 if left else 0)
