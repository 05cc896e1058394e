"""`etude bench lite`: the tasks of a bench run that keep its order of policies at a fraction of the cost, or an honest no."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.bench.compare import Only, Runs
from etude.cli.option import DryRun, Json

Share = Annotated[float, typer.Option("--share", min=0.01, max=0.99, help="Maximum share of the whole suite's cost.")]
Least = Annotated[float, typer.Option("--least", min=0.0, max=1.0, help="Held-out rank correlation, at least.")]
Seed = Annotated[int, typer.Option("--seed", help="Random seed for the two halves on which the choice is judged.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE|DIR",
        help="Output file for the list as JSON; with --suite, the folder of a suite of those tasks.",
    ),
]
From = Annotated[
    Path | None, typer.Option("--suite", metavar="DIR", help="The suite's folder, to make a suite of the list.")
]


class LiteError(Exception):
    """The list can't be written as asked for."""


def lite(
    runs: Runs,
    only: Only = None,
    share: Share = 0.2,
    least: Least = 0.9,
    seed: Seed = 0,
    suite: From = None,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Choose a lite suite, judged on passes and policies that had no part in the choice; refuses if the order is not kept."""
    from etude.core.statistics.lite import choose_lite
    from etude.evaluate.bench.comparison import read_comparison

    if suite is not None and out is None:
        raise typer.BadParameter("--suite makes a suite of the list: say where with --out DIR")
    field = read_comparison(runs, only or ())
    axis, costs = field.costs()
    found = choose_lite(field.tables(), costs, share=share, least=least, seed=seed, weights=field.task_weights())
    ids = field.ids
    document = {
        "suite": field.shared["suite"],
        "tasks": [ids[i] for i in found.tasks],
        "of_tasks": len(ids),
        "cost_axis": axis,
        "cost_share": round(found.cost_share, 4),
        "rank_correlation": round(found.reached, 4),
        "held_out_passes": _rounded(found.held_out_passes),
        "held_out_policies": _rounded(found.held_out_policies),
        "whole_itself": _rounded(found.whole_itself),
        "low": round(found.low, 4),
        "policies": list(field.rows),
        "seed": seed,
        "out": None if out is None else str(out),
    }
    if out is not None and not dry_run:
        _write(document, suite, out)
    return Answer(document, _text(document, written=not dry_run))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _write(document: dict[str, Any], suite: Path | None, out: Path) -> None:
    if suite is not None:
        from etude.evaluate.bench.lite_suite import freeze_lite

        freeze_lite(suite, document, out)
        return
    import json

    if out.is_dir():
        raise LiteError(f"--out {out} is a folder: the list is a file; with --suite DIR a suite folder is made")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _text(found: dict[str, Any], *, written: bool) -> str:
    held = {"passes": found["held_out_passes"], "policies": found["held_out_policies"]}
    judged = " and ".join(f"{value:.2f} on held-out {what}" for what, value in held.items() if value is not None)
    lines = [
        f"{len(found['tasks'])} of {found['of_tasks']} tasks of {found['suite']['label']}, {found['cost_share']:.1%} of its "
        f"{found['cost_axis']}: rank correlation {judged}, over {len(found['policies'])} policies",
        f"a tenth of the rounds lie below {found['low']:.2f}"
        + (
            ""
            if found["whole_itself"] is None
            else f"; the whole suite agrees with itself at {found['whole_itself']:.2f}"
        ),
        *found["tasks"],
    ]
    if found["out"] is not None:
        lines.append(f"{'written to' if written else 'would be written to'} {found['out']}")
    return "\n".join(lines)
