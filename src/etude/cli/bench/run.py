"""`etude bench run`: suites asked of policies, as often as it takes, in the one harness; resumable, bounded in money and at once."""

from __future__ import annotations

from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from etude.cli.answer import Answer
from etude.cli.bench import asked
from etude.cli.option import DryRun, Json, Overrides
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.core.events.log import EventLog
    from etude.core.trace.entry import Effort
    from etude.evaluate.bench.runs.participant import Participant
    from etude.evaluate.bench.suites.suite import Suite
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.policy_options import PolicyOptions
    from etude.pipeline.run.suite_bench import BenchmarkOrder


class BenchError(Exception):
    """What was asked for makes no sense, or ended early."""


# Of --judge: who judges, then --recipe, --set and --key-env.
Judging: TypeAlias = "tuple[str | None, str, list[str] | None, str]"

EFFORTS = ("low", "medium", "high")

Named = Annotated[
    list[str], typer.Argument(metavar="SUITE...", help="Suites' folders or names: exercises, real, targeted-NAME.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="P",
        help="Policy to run: expert, nop, cheats, cheat:NAME, checkpoint:DIR or NAME=URL#MODEL (an OpenAI-compatible endpoint); repeatable.",
    ),
]  # fmt: skip
Only = Annotated[bool, typer.Option("--only", help="Run only the named policies, without nop, cheats and expert.")]
Passes = Annotated[int, typer.Option("--passes", min=1, help="Attempts at each task by each policy and effort.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Attempts in flight.")]
Tasks = Annotated[
    int | None, typer.Option("--tasks", min=1, help="Maximum number of tasks of each suite, starting with the first.")
]
Chosen = Annotated[
    list[str] | None, typer.Option("--task", metavar="GLOB", help="Tasks whose ids match; repeatable. Default: all.")
]
Seed = Annotated[int, typer.Option("--seed", help="Random seed for sampling and the bootstrap.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Results, of several suites in DIR/SUITE; the same folder goes on. Default: runs/bench/."
    ),
]  # fmt: skip
RecipeName = Annotated[
    str, typer.Option("--recipe", help="Recipe to take exercises, sandboxes and a checkpoint's limits from.")
]
JudgeWord = Annotated[
    str | None,
    typer.Option("--judge", metavar="[NAME=]URL#MODEL", help="Judge the rubrics with this model afterwards, like `bench judge`."),
]  # fmt: skip


Arms = Annotated[
    bool,
    typer.Option(
        "--arms", help="Run each named policy twice, with and without self-summaries, at the same token budget."
    ),
]


def run(
    suites: Named, policies: Policies = None, only: Only = False, effort: asked.Efforts = "medium",
    harness: asked.Harnesses = "etude", passes: Passes = 1, max_cost: asked.MaxCost = None, prices: asked.PriceFile = None,
    price_in: asked.PriceIn = None, price_out: asked.PriceOut = None, price_cached: asked.PriceCached = None,
    concurrency: Concurrency = 4, tasks: Tasks = None, task: Chosen = None, seed: Seed = 7, out: Folder = None,
    recipe: RecipeName = "laptop", overrides: Overrides = None, preset: asked.Preset = None,
    temperature: asked.Temperature = 1.0, context: asked.Context = None, key_env: asked.KeyEnv = "OPENAI_API_KEY",
    timeout: asked.Timeout = 300.0, attempt_limit: asked.Limit = 3600.0, omit: asked.Omit = None,
    max_tokens_field: asked.TokenField = "max_tokens", judge: JudgeWord = None, arms: Arms = False,
    dry_run: DryRun = False, json: Json = False,
) -> Answer:  # fmt: skip
    """Run benchmark suites with several policies and several attempts each; nop, cheating agents and the reference are in every table.

    The same command resumes a stopped run. A run that reaches its budget says so, and resumes with a higher one.
    """
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.pipeline.run.policy_options import PolicyOptions
    from etude.pipeline.run.suite_bench import BenchmarkOrder
    from etude.pipeline.run.suites import open_suite

    if any(word.partition("=")[0].strip() == "bench.seed" for word in overrides or []):
        raise BenchError("--set bench.seed: the seed of a benchmark run is --seed N (or seed = N in the --config file)")
    found = read_recipe([find_recipe(recipe)], [*(overrides or []), f"bench.seed={seed}"])
    options = PolicyOptions(
        _efforts(effort), temperature, preset, context, key_env, timeout, tuple(omit or ()),
        max_tokens_field, concurrency, _agents(harness),
    )  # fmt: skip
    given = asked.prices_given(prices, price_in, price_out, price_cached, date.today())
    opened = [open_suite(name, found, tasks=tasks) for name in dict.fromkeys(suites)]
    folders = _folders([suite.name for suite in opened], out)
    orders = []
    for suite, folder in zip(opened, folders, strict=True):
        log, who = _participants(suite, folder, found, options, policies or [], only=only, arms=arms, dry_run=dry_run)
        order = BenchmarkOrder(
            suite, _ids(suite, tasks, task), who, folder, log, passes, concurrency, seed, found.bench.resamples,
            max_cost, tuple(other for other in folders if other != folder), attempt_limit, given, judge,
        )  # fmt: skip
        orders.append(order)
    return _answered(orders, found, options, (judge, recipe, overrides, key_env), dry_run=dry_run)


def _participants(
    suite: Suite,
    folder: Path,
    recipe: Recipe,
    options: PolicyOptions,
    policies: list[str],
    *,
    only: bool,
    arms: bool,
    dry_run: bool,
) -> tuple[EventLog, list[Participant]]:
    """The log of a suite's results, and the policies that it is asked of. Raises BenchError where there is none."""
    from etude.core.events.log import EventLog
    from etude.pipeline.run.participants import participants_without_summaries, resolve_participants

    log = EventLog.null() if dry_run else EventLog(folder / "events.jsonl")
    found = resolve_participants(policies, suite, recipe, options, log, only=only)
    if arms:
        found += participants_without_summaries(policies, suite, recipe, options, log)
    if not found:
        raise BenchError("no policy to ask: name a --policy, or leave out --only")
    return log, found


def _answered(
    orders: list[BenchmarkOrder], recipe: Recipe, options: PolicyOptions, judging: Judging, *, dry_run: bool
) -> Answer:
    """What the suites say, or would be asked."""
    if dry_run:
        return _all([_plan(order, options) for order in orders])
    _ready(orders)
    return _all([_judged(_go(recipe, order), order, judging) for order in orders])


def _folders(names: list[str], out: Path | None) -> list[Path]:
    """Where each suite's results go."""
    if out is not None and len(names) == 1:
        return [out]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BenchError(
            f"two of the suites are called {twice[0]}: ask them one after the other, each with its own --out"
        )
    return [(out or Path("runs") / "bench") / name for name in names]


def _ready(orders: list[BenchmarkOrder]) -> None:
    """Read every suite before the first one runs, so that a fault in the last one is reported at the start."""
    from etude.evaluate.bench.runs.checking import checked_tasks

    for order in orders[1:]:
        checked_tasks(order.suite, order.ids)


def _all(answers: list[Answer]) -> Answer:
    """One suite's answer as it is, several under their names."""
    if len(answers) == 1:
        return answers[0]
    documents = [answer.document for answer in answers]
    return Answer(
        {"suites": documents}, "\n\n".join(answer.text for answer in answers), max(answer.code for answer in answers)
    )


def _efforts(text: str) -> tuple[Effort, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if strange := [word for word in words if word not in EFFORTS]:
        raise BenchError(f"--effort {text}: there is no effort {strange[0]!r}; there are {', '.join(EFFORTS)}")
    if not words:
        raise BenchError(f"--effort names none; there are {', '.join(EFFORTS)}")
    return cast("tuple[Effort, ...]", tuple(dict.fromkeys(words)))


def _agents(text: str) -> tuple[str, ...]:
    from etude.pipeline.run.other_agent import AGENTS

    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words or (strange := [word for word in words if word not in AGENTS]):
        named = f"there is no harness {strange[0]!r}" if words else "it names none"
        raise BenchError(f"--harness {text}: {named}; there are {', '.join(AGENTS)}")
    return tuple(AGENTS[word] for word in words)


def _ids(suite: Suite, most: int | None, globs: list[str] | None) -> list[str]:
    ids = [name for name in suite.ids if not globs or any(fnmatchcase(name, glob) for glob in globs)]
    if not ids:
        raise BenchError(
            f"no task of {suite.name} matches --task {' '.join(globs or [])}; it has {', '.join(suite.ids[:5])} …"
        )
    return ids[:most]


def _plan(order: BenchmarkOrder, options: PolicyOptions) -> Answer:
    from etude.core.redact.keys import api_key
    from etude.evaluate.bench.suites.suite import label
    from etude.pipeline.run.suite_bench import facts

    known = {participant.key: facts(order, participant) for participant in order.participants}
    attempts = len(order.ids) * order.passes * len(order.participants)
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
    key_status = "set" if api_key(options.key_env) else "not set, so no key is sent"
    lines = [
        f"would ask {label(order.suite)}: {len(order.ids)} tasks x {order.passes} passes of {len(order.participants)} policies, "
        f"{attempts} attempts, {order.concurrency} at a time, into {order.folder}",
        *(f"  {key:24} {row['kind']:10} harness {row['harness']}  {_priced(row)}" for key, row in known.items()),
        *([f"{options.key_env} is {key_status}"] if any(row["kind"] == "endpoint" for row in known.values()) else []),
    ]
    return Answer(document, "\n".join(lines))


def _priced(row: dict[str, Any]) -> str:
    price = row["price"]
    if price is None:
        return "no price" if row["model"] else "free"
    return f"${price['input']:g} in, ${price['output']:g} out per million tokens, since {price['since']}"


def _go(recipe: Recipe, order: BenchmarkOrder) -> Answer:
    from etude.agent.policy.breaker import EndpointGone
    from etude.core.events.live import LiveView
    from etude.pipeline.run.lock import RunLock
    from etude.pipeline.run.suite_bench import bench_suite

    with RunLock(order.folder), LiveView(order.folder / "events.jsonl"):
        try:
            document, found = run_async(bench_suite(recipe, order))
        except EndpointGone as gone:
            raise BenchError(f"the endpoint stopped answering: {gone}. Run the same command again to go on") from gone
        finally:
            order.log.close()
    left = [one for one in found if one.missing]
    notes = [
        f"{one.key}: {one.missing} attempts are missing: "
        + (one.stopped or f"faults of ours, the last: {list(one.faults.values())[-1]}. Run the same command again")
        for one in left
    ]
    text = "\n".join([table(document), *notes, f"report: {order.folder / 'report.html'}"])
    return Answer(document, text, 1 if left else 0)


def _judged(answer: Answer, order: BenchmarkOrder, how: Judging) -> Answer:
    """Add the judge's results if the suite has rubrics. An unfinished run is judged when it is finished."""
    from etude.pipeline.run.suite_bench import rubrics

    word, recipe, overrides, key_env = how
    if not rubrics(order):
        note = f"no task of {order.suite.name} has a rubric: --judge has nothing to judge"
        return Answer(answer.document, f"{answer.text}\n{note}", answer.code) if word else answer
    if word is None:
        left_out = answer.document["judged"].get("why", "")  # unless an earlier run had it judged
        return Answer(answer.document, f"{answer.text}\n{left_out}".rstrip(), answer.code)
    if answer.code:
        return Answer(answer.document, f"{answer.text}\nnothing is judged before all attempts are made", answer.code)
    from etude.cli.bench.judge import judge
    from etude.evaluate.bench.run_report import report
    from etude.evaluate.bench.runs.folder import RunFolder

    said = judge(order.folder, word, None, recipe, overrides, key_env)
    return Answer(report(RunFolder(order.folder)), f"{answer.text}\n{said.text}", said.code)


COLUMNS = ("policy", "average", "95% interval", "best of", "passes", "tokens", "dollars", "seconds", "turns")


def table(report: dict[str, Any]) -> str:
    """One line a policy and effort, then the fronts, the pairs that differ, and what is left to do."""
    rows = [COLUMNS, *(_row(entry) for entry in report["policies"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    head = f"{report['suite']['label']}, {report['tasks']} tasks; per attempt:"
    return "\n".join([head, *lines, *_fronts(report), *_summaries(report), *_items(report), *_thin(report)])


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    low, high = entry["ci95"]
    k, best = list(entry["best_of"].items())[-1]
    axes = entry["axes"]
    return (
        entry["key"],
        f"{entry['avg']:.1f}%",
        f"[{low:.1f}, {high:.1f}]",
        f"{best:.1f}% of {k}",
        str(entry["passes"]),
        _figure(axes, "tokens", ",.0f"),
        _figure(axes, "dollars", ".4f"),
        _figure(axes, "seconds", ".1f"),
        f"{entry['turns']:.1f}",
    )


def _figure(axes: dict[str, Any], name: str, form: str) -> str:
    return format(axes[name]["value"], form) if name in axes else "-"


def _fronts(report: dict[str, Any]) -> list[str]:
    """Where more than one competes."""
    lines = []
    for axis, points in report.get("pareto", {}).items():
        if len(points) > 1:
            held = [f"{p['key']} ({100 * p['share']:.0f}%)" for p in points if p["on_front"]]
            lines.append(f"front by {axis}: {', '.join(held)}")
    return lines


def _summaries(report: dict[str, Any]) -> list[str]:
    """What self-summaries were worth, where a policy was asked with and without."""
    return [
        f"self-summaries of {row['with']}: {row['points']:+.1f} points {row['ci95']} over {row['tasks']} tasks, "
        f"{row['tokens_with']:,.0f} tokens instead of {row['tokens_without']:,.0f}"
        for row in report.get("summaries", [])
    ]


def _items(report: dict[str, Any]) -> list[str]:
    found, tasks = report.get("items", {}), report["tasks"]
    labels = {"saturated": "always solved", "impossible": "never solved"}
    return [f"{len(found[key])} of {tasks} tasks are {words}" for key, words in labels.items() if found.get(key)]


def _thin(report: dict[str, Any]) -> list[str]:
    thin = report["thin_levels"]
    return [f"one task each of {', '.join(thin)}: their spread is taken from the rest; ask more tasks"] if thin else []
