"""`etude gpu`: what this machine's GPUs do with this code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.learn.gpu_check.check import CheckedPart

app = typer.Typer(no_args_is_help=True, help="Measure what this machine's GPUs do with this code.")

CPU_RANKS = 2


@app.callback()
def gpu() -> None:
    """Measure what this machine's GPUs do with this code."""


@app.command()
def check(
    device: Annotated[
        Literal["auto", "cuda", "cpu"],
        typer.Option(
            "--device",
            help="Device to measure; auto takes GPUs where there are any. On a CPU the check is small and shows that it works.",
        ),
    ] = "auto",
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", min=1, metavar="N", help="Ranks of the layouts. Default: all GPUs; 2 on a CPU."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the figures here, as JSON.")] = None,
    json: Json = False,
) -> Answer:
    """Train, split a model over ranks in every way, and decode; exit 1 if a part fails or ranks reach other weights than one process."""
    from etude.core.events.finite import dumps
    from etude.core.files import replace_file
    from etude.learn.gpu_check.check import document, gpus, run_parts
    from etude.learn.gpu_check.measuring import Scale
    from etude.learn.parallel.rank_device import require_device

    chosen = ("cuda" if gpus() else "cpu") if device == "auto" else device
    count = ranks or (gpus() if chosen == "cuda" else CPU_RANKS)
    require_device(chosen, count, "--device")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.parent}; make it first")
    parts, shown = [], list[str]()
    for part in run_parts(Scale.of(chosen, count)):
        parts.append(part)
        shown += part_lines(part)
        print(f"{part.name} is done" if part.figures is not None else part_lines(part)[0], file=sys.stderr, flush=True)
    found = document(Scale.of(chosen, count), parts)
    if chosen == "cpu":
        shown.append("figures of a CPU: nothing is said of a GPU")
    if out is not None:
        replace_file(out, dumps(found, indent=1) + "\n")
        shown.append(f"written to {out}")
    return Answer(found, "\n".join(shown), int(bool(found["failed"])))


def part_lines(part: CheckedPart) -> list[str]:
    """For a person."""
    if part.figures is None:
        return [f"{part.name}: {'FAILED' if part.failed else 'not measured'}: {part.reason}"]
    rows = part.figures if part.name != "ceilings" else {"best": part.figures}
    width = max(map(len, rows))
    return [f"{part.name}:", *(f"  {name:{width}}  {_figures(row)}" for name, row in rows.items())]


def _figures(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_figure(value)}" for name, value in row.items() if value is not None)


def _figure(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int) and abs(value) >= 1e6:
        return f"{value / 1e9:,.3g}e9"
    return f"{value:.4g}"
