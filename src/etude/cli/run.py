"""`etude run`: the whole way, or the stages asked for."""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.extras import require_packages
from etude.cli.option import Address, DryRun, Json, Out, Overrides, Recipes
from etude.cli.prepare import (
    prepare,
    require_checkpoints,
    require_demonstrations,
    require_gpus,
    require_layouts,
    require_levels,
    require_one_compute,
    require_plugins,
    require_stages,
    require_tasks,
    require_temperature,
    require_tokenizer,
)

if TYPE_CHECKING:
    from etude.pipeline.run.execute import Run
    from etude.pipeline.run.plan import PlanStep

WITHOUT_TORCH = {"corpus", "sessions", "report"}  # stages that train and measure nothing


def run(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Out = None,
    address: Address = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="STAGE", help="Run this stage alone; --dry-run names them."),
    ] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="STAGE", help="Start with this stage.")] = None,
    last: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="End with this stage.")] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Run a recipe end to end (default: laptop). Stopped at any point, the same command goes on from there."""
    from etude.pipeline.run.plan import select

    found = prepare(recipes, overrides, out, address)
    return go(found, select(found.graph, only, first, last), dry_run=dry_run)


def go(run: Run, selected: list[str], *, dry_run: bool = False) -> Answer:
    """Execute or show the plan of the selected stages."""
    from etude.pipeline.run.hub_checkpoints import download_checkpoints

    require_stages(run, selected)
    require_checkpoints(run, selected)
    require_tokenizer(run, selected)
    require_demonstrations(run, selected)
    require_tasks(run, selected)
    require_levels(run, selected)
    require_one_compute(run, selected)
    require_layouts(run, selected)
    require_temperature(run, selected)
    require_plugins(run, selected)
    if dry_run:
        return _plan(run, selected)
    require_packages(*_packages(selected))
    require_gpus(run, selected)
    from etude.learn.parallel.launched import LaunchedWorld, follow

    if (world := LaunchedWorld.find()) is not None and world.rank:
        stages = follow(world)
        return Answer({"rank": world.rank, "stages": stages}, f"rank {world.rank} of {world.size}: {stages} stages")
    download_checkpoints(run, selected)
    with world.leading() if world is not None else nullcontext():
        steps = _execute(run, selected)
    document: dict[str, Any] = {
        "run": str(run.folder),
        "steps": [{"stage": s.stage, "action": s.action, "why": s.why} for s in steps],
        "report": None,
    }
    text = f"{run.folder}: {', '.join(s.stage for s in steps)} done"
    report = run.folder / "report.json"
    if "report" in selected and report.is_file():
        found = json.loads(report.read_text())
        document |= {"report": str(report), "lift": found.get("lift")}
        text = f"{_lift(found)}\nreport: {run.folder / 'report.html'}"
    return Answer(document, text)


def _execute(run: Run, selected: list[str]) -> list[PlanStep]:
    try:
        return run.execute(selected)
    except KeyboardInterrupt as stop:
        stop.add_note(run.describe_kept())
        raise


def _packages(selected: list[str]) -> list[str]:
    """The packages that these stages need in addition to those that every verb has."""
    torch = ["torch"] if set(selected) - WITHOUT_TORCH else []
    return [*torch, *(["ray"] if "rl" in selected else [])]


def _plan(run: Run, selected: list[str]) -> Answer:
    processes = {stage.name: stage.processes for stage in run.graph}
    steps = [
        {"stage": s.stage, "action": s.action, "why": s.why, "processes": processes[s.stage]}
        for s in run.plan(selected)
    ]
    width = max(len(s["stage"]) for s in steps)
    lines = [f"# {s['stage']:{width}}  {s['action']:6}  {s['why']}; {s['processes']}" for s in steps]
    from etude.pipeline.recipe.read import resolved_toml
    from etude.pipeline.run.hub_checkpoints import planned_downloads

    document = {"run": str(run.folder), "recipe": run.recipe.model_dump(mode="json"), "plan": steps}
    if downloads := planned_downloads(run, selected):
        document |= {"downloads": downloads}
        lines += [_download_line(row) for row in downloads]
    if notes := _collected_notes(run, selected):
        document |= {"notes": notes}
        lines += [f"# sft.collected: {note}" for note in notes]
    rl_begins = any(step["stage"] == "rl" and step["action"] == "run" for step in steps)
    memory, memory_lines = _memory(run, selected, rl_begins)
    document |= {"memory": memory}
    lines += memory_lines
    gpus, gpu_lines = _gpus(run, selected)
    document |= {"gpus": gpus} if gpus else {}
    lines += gpu_lines
    return Answer(document, "\n".join([resolved_toml(run.recipe), f"# plan for {run.folder}", *lines]))


def _collected_notes(run: Run, selected: list[str]) -> list[str]:
    """Collected sessions whose tools are not those that rl and bench offer."""
    from etude.agent.harness.presets.preset import preset_of
    from etude.rollout.collect.offered_tools import other_tools

    if "sft" not in selected:
        return []
    schemas = preset_of(run.recipe.harness).schemas
    return [note for folder in run.recipe.sft.collected if (note := other_tools(Path(folder), schemas))]


def _memory(run: Run, selected: list[str], rl_begins: bool) -> tuple[list[dict[str, Any]] | None, list[str]]:
    """What the selected stages will take, None where it is not known; and lines that say so. A stage rl that does not begin keeps its numbers."""
    if find_spec("torch") is None:
        return None, ["# memory: not predicted, since torch is not installed"]
    from etude.pipeline.run.ledger import StageLedger
    from etude.pipeline.run.memory_plan import document, lines, memory_plan
    from etude.pipeline.run.plan import with_chosen_tokens

    ledger = StageLedger(run.folder / "ledger.jsonl")
    recipe = run.located if rl_begins else with_chosen_tokens(run.located, ledger, "rl")
    plan = memory_plan(recipe, selected)
    kept = set(run.located.rl.update.auto_tokens).difference(recipe.rl.update.auto_tokens) if "rl" in selected else ()
    said = [f"# rl.update: {name} = {getattr(recipe.rl.update, name):,}, as the stage began" for name in sorted(kept)]
    return document(plan), lines(plan) + said


def _gpus(run: Run, selected: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Of the selected stages that split a model over GPUs: what it would take."""
    if find_spec("torch") is None:
        return [], []
    from etude.pipeline.run.stage_plan import gpu_plans

    return gpu_plans(run.located, selected)


def _download_line(row: dict[str, Any]) -> str:
    from etude.learn.weights.hub_fetch import describe_download

    counts = (row["files"], row["bytes"], row["missing_files"], row["missing_bytes"])
    return f"# {row['key']} = {row['repository']} at commit {row['commit']}: {describe_download(*counts)}"


def _lift(report: dict[str, Any]) -> str:
    lift = report.get("lift")
    if not lift:
        return "no lift was measured"
    low, high = lift["ci95"]
    return f"lift {lift['avg_points']:+.1f} points, 95% interval [{low:+.1f}, {high:+.1f}]"
