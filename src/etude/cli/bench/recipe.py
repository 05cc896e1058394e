"""`etude bench [recipe]`: the run's bench stage, or with --model the same tasks asked of an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from etude.cli.answer import Answer
from etude.cli.option import DryRun, Json, Out, Overrides, Recipes
from etude.cli.prepare import prepare
from etude.cli.run import go

if TYPE_CHECKING:
    from etude.run.endpoint import Endpoint, Suite
    from etude.run.execute import Run


class EndpointError(Exception):
    """The endpoint was not described well enough to ask it."""


class SuiteName(StrEnum):
    """What to ask an endpoint."""

    exercises = "exercises"
    real = "real"
    both = "both"


PANEL = "With --model URL"


def _option(*names: str, help: str, **limits: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL, **limits)


Url = Annotated[str | None, _option("--model", metavar="URL", help="Ask this endpoint, e.g. http://127.0.0.1:8000/v1.")]
Name = Annotated[str | None, _option("--name", help="The model's name at the endpoint.")]
Suites = Annotated[SuiteName, _option("--suite", help="Generated exercises, bugs in real packages, or both.")]
Tasks = Annotated[
    int | None,
    _option("--tasks", min=1, help="At most this many tasks of each suite. Default: 24 exercises, all bugs."),
]
Passes = Annotated[int, _option("--passes", min=1, help="Attempts at each task.")]
Concurrency = Annotated[int, _option("--concurrency", min=1, help="Attempts in flight.")]
Temperature = Annotated[float, _option("--temperature", min=0.0, help="Sampling temperature.")]
Context = Annotated[
    int | None,
    _option("--context", min=4096, help="The model's window in tokens; sessions summarize themselves at 60% of it."),
]
KeyEnv = Annotated[str, _option("--key-env", metavar="VARIABLE", help="The environment variable with the API key.")]
Timeout = Annotated[float, _option("--timeout", min=1.0, help="Seconds to wait for one answer.")]
Limit = Annotated[float, _option("--attempt-limit", min=10.0, help="Seconds that one attempt may take.")]
Omit = Annotated[
    list[str] | None,
    _option("--omit", metavar="FIELD", help="A request field the endpoint refuses, e.g. seed; repeatable."),
]
TokenField = Annotated[
    str, _option("--max-tokens-field", help="Its name at the endpoint; newer OpenAI models: max_completion_tokens.")
]
PriceIn = Annotated[float | None, _option("--price-in", min=0.0, help="Dollars per million input tokens.")]
PriceOut = Annotated[float | None, _option("--price-out", min=0.0, help="Dollars per million output tokens.")]
PriceCached = Annotated[
    float | None, _option("--price-cached", min=0.0, help="Dollars per million cached input tokens.")
]


def bench(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Out = None,
    model: Url = None,
    name: Name = None,
    suite: Suites = SuiteName.both,
    tasks: Tasks = None,
    passes: Passes = 1,
    concurrency: Concurrency = 4,
    temperature: Temperature = 1.0,
    context: Context = None,
    key_env: KeyEnv = "OPENAI_API_KEY",
    timeout: Timeout = 300.0,
    attempt_limit: Limit = 3600.0,
    omit: Omit = None,
    max_tokens_field: TokenField = "max_tokens",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Compare the run's checkpoints on held-out tasks, or ask the same tasks and more of an endpoint (--model URL)."""
    run = prepare(recipes, overrides, out)
    if model is None:
        return go(run, ["trials", "bench"], dry_run=dry_run)
    from etude.run.endpoint import SUITES, Endpoint, Prices

    suites = SUITES if suite is SuiteName.both else (cast("Suite", suite.value),)
    prices = Prices(price_in, price_out, price_cached)
    known = _known(model, name)
    limits = (temperature, context, key_env, timeout, attempt_limit, tuple(omit or ()), max_tokens_field)
    endpoint = Endpoint(*known, suites, tasks, passes, concurrency, *limits, prices)
    # One folder for each model, so that an interrupted bench goes on and two models never mix.
    folder = out or Path("runs") / "endpoints" / re.sub(r"[^\w.-]", "-", endpoint.model)
    return _plan(endpoint, folder) if dry_run else _ask(run, endpoint, folder)


def _known(url: str, name: str | None) -> tuple[str, str]:
    if not re.match(r"https?://", url):
        raise EndpointError(f"--model {url}: give the endpoint's address, e.g. http://127.0.0.1:8000/v1")
    if not name:
        raise EndpointError("say which model to ask for at the endpoint: --name NAME")
    return url, name


def _plan(endpoint: Endpoint, folder: Path) -> Answer:
    key = "set" if os.environ.get(endpoint.key_env) else "not set, so no key is sent"
    asked = "24 exercises and all real bugs" if endpoint.tasks is None else f"at most {endpoint.tasks} tasks each"
    text = (
        f"would ask {endpoint.model} at {endpoint.url}: {' and '.join(endpoint.suites)}, {asked}, "
        f"{endpoint.passes} attempts at each task, {endpoint.concurrency} at a time, into {folder}; "
        f"{endpoint.key_env} is {key}"
    )
    document = {
        "endpoint": endpoint.url,
        "name": endpoint.model,
        "suites": list(endpoint.suites),
        "tasks": endpoint.tasks,
        "passes": endpoint.passes,
        "out": str(folder),
    }
    return Answer(document, text)


def _ask(run: Run, endpoint: Endpoint, folder: Path) -> Answer:
    from etude.bench.contest import STAGE
    from etude.events.live import LiveView
    from etude.events.log import EventLog
    from etude.policy.breaker import EndpointGone
    from etude.run.endpoint_bench import bench_endpoint
    from etude.run.lock import RunLock

    events = folder / "events.jsonl"
    with RunLock(folder), LiveView(events):
        log = EventLog(events)
        log.note(STAGE, f"asks {endpoint.model} at {endpoint.url}, into {folder}")
        try:
            report = asyncio.run(bench_endpoint(run.recipe, endpoint, folder, log))
        except EndpointGone as gone:
            raise EndpointError(
                f"the endpoint stopped answering: {gone}. Run the same command again to go on"
            ) from gone
        finally:
            log.close()
    return Answer(report, f"{_table(report, endpoint.model)}\nreport: {folder / 'report.html'}")


def _table(report: dict[str, Any], model: str) -> str:
    rows = {"exercises": report.get("bench", {}).get(model), "real packages": report.get("bench_real", {}).get(model)}
    lines = [
        f"{model}: average, 95% interval, tasks x passes, then per attempt: tokens in / out, calls, seconds, dollars"
    ]
    for name, entry in rows.items():
        if entry is None:
            continue
        low, high = entry["ci95"]
        usage = entry["usage"]
        tokens = " / ".join(_figure(usage[f"{side}_tokens_per_attempt"], ",.0f") for side in ("input", "output"))
        lines.append(
            f"{name:14} {entry['avg']:5.1f}% [{low:.1f}, {high:.1f}]  {entry['tasks']} x {entry['passes']}  "
            f"{tokens}  {entry['tool_calls']:.1f}  {entry['seconds']:.1f}  {_figure(usage['dollars_per_attempt'], '.4f')}"
        )
    return "\n".join(lines)


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
