"""`etude bench compare`: policies of one or more bench runs against each other, pair by pair, and what their tasks tell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

Runs = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of `etude bench run`, of one suite.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="GLOB", help="Only these; repeatable. Default: all but nop, cheats, expert."
    ),
]
Wish = Annotated[
    float | None,
    typer.Option(
        "--wish", metavar="POINTS", help="Difference to detect; prints how many tasks would find it, for each pair."
    ),
]
SHOWN = 10  # tasks of each kind in the text; --json has all


def compare(runs: Runs, only: Only = None, wish: Wish = None, json: Json = False) -> Answer:
    """Compare policies by paired differences with intervals and corrected p-values.

    Also prints the differences that this suite can detect, and the tasks that separate no policies.
    """
    from etude.evaluate.bench.comparison import read_comparison

    if wish is not None and not wish > 0:
        raise typer.BadParameter(f"--wish {wish:g}: give a difference above 0, in points")
    found = read_comparison(runs, only or ()).compare(wish)
    return Answer(found, "\n".join([*_policies(found), *_pairs(found), *_ranking(found), *_items(found)]))


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as text, their cells aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _policies(found: dict[str, Any]) -> list[str]:
    rows = [("policy", "average", "95% interval", "passes")]
    rows += [(p["key"], f"{p['avg']:.1f}%", _interval(p["ci95"], ".1f"), str(p["passes"])) for p in found["policies"]]
    return [f"{found['suite']['label']}, {found['tasks']} tasks", *columns(rows)]


def _pairs(found: dict[str, Any]) -> list[str]:
    if not found["pairs"]:
        return []
    wished = "tasks_needed" in found["pairs"][0]
    head = ("a", "b", "b - a", "95% interval", "p", "p of all", "tasks that differ", "detectable", "spread from passes")
    rows: list[tuple[str, ...]] = [head + (("tasks for the wish",) if wished else ())]
    for pair in found["pairs"]:
        least, passes = pair["detectable_points"], pair["spread_from_passes"]
        row = (
            pair["a"],
            pair["b"],
            f"{pair['points']:+.1f}",
            _interval(pair["ci95"], "+.1f"),
            f"{pair['p']:.4f}",
            f"{pair['p_holm']:.4f}",
            str(pair["tasks_changed"]),
            "-" if least is None else f"{least:.1f}",
            "-" if passes is None else f"{100 * passes:.0f}%",
        )
        rows.append(row + ((str(pair["tasks_needed"] or "-"),) if wished else ()))
    return ["", "in points, on the same tasks; a difference below `detectable` is likely missed:", *columns(rows)]


def _ranking(found: dict[str, Any]) -> list[str]:
    ranking = found["ranking"]
    if ranking is None:
        return ["", "order of policies: three or more are needed to say how sound it is"]
    return [
        "",
        f"order of policies: halves of the tasks agree at {ranking['halves']:.2f}, whole suites would at {ranking['whole']:.2f}",
    ]


def _items(found: dict[str, Any]) -> list[str]:
    items = found["items"]
    against = [f"{task_id} ({r:.2f})" for task_id, r in items["discrimination"].items() if r < 0]
    kinds = {
        "always solved": items["saturated"],
        "never solved": items["impossible"],
        "that better policies fail more, with their correlation (read these first)": against,
    }
    return [f"{len(ids)} tasks {what}: {_few(ids)}" for what, ids in kinds.items() if ids]


def _few(ids: list[str]) -> str:
    return ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")


def _interval(ends: list[float], form: str) -> str:
    return f"[{ends[0]:{form}}, {ends[1]:{form}}]"
