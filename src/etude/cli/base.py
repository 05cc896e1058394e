"""`etude base`: which checkpoint is the best to go on from, judged on one's own code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

app = typer.Typer(no_args_is_help=True)

_Checkpoints = Annotated[
    list[Path],
    typer.Argument(metavar="CHECKPOINT...", help="Hugging Face directories with tokenizer.json, or models' names."),
]
_On = Annotated[
    list[Path],
    typer.Option("--on", metavar="DIR", help="A folder of code, a git repository, or a library; repeatable."),
]
_Sessions = Annotated[
    list[Path] | None,
    typer.Option("--sessions", metavar="DIR", help="Recorded sessions, for fresh knowledge; repeatable."),
]
_Kept = Annotated[Path, typer.Option("--out", metavar="DIR", help="Keeps results, so that nothing is measured twice.")]
_Measures = Annotated[
    list[str] | None,
    typer.Option("--measure", help="Measure to take: perplexity, state, knowledge or cost; repeatable. Default: all."),
]
_Context = Annotated[
    int | None, typer.Option("--context", min=64, help="Tokens read at once. Default: what all can read, at most 2048.")
]
_Bytes = Annotated[
    int | None, typer.Option("--max-bytes", min=1, help="Maximum bytes of code to read. Default: 1,000,000.")
]
_Seed = Annotated[int, typer.Option("--seed", help="Random seed for drawing files and questions.")]
_Quick = Annotated[bool, typer.Option("--quick", help="Few files and questions: minutes, wide intervals.")]
_Plan = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be measured and which results exist; measure nothing.")
]


class UnknownMeasure(ValueError):
    """A measure by another name than those there are."""


@app.callback()
def _verbs() -> None:
    """Compare checkpoints before one is trained on."""  # a callback keeps `compare` a verb while it is the only one


@app.command()
def compare(
    checkpoints: _Checkpoints,
    on: _On,
    sessions: _Sessions = None,
    out: _Kept = Path("runs/bases"),
    measure: _Measures = None,
    context: _Context = None,
    max_bytes: _Bytes = None,
    seed: _Seed = 0,
    quick: _Quick = False,
    dry_run: _Plan = False,
    json: Json = False,
) -> Answer:
    """Compare base models in one table: perplexity on code, state tracking over its history, fresh knowledge from sessions, decoding cost."""
    from dataclasses import replace

    from etude.evaluate.bench.bases import compare as comparison
    from etude.evaluate.bench.bases.compared_checkpoint import compared_checkpoints
    from etude.evaluate.bench.bases.material import QUICK, Extent, material
    from etude.evaluate.bench.bases.result_cache import ResultCache
    from etude.evaluate.bench.bases.text import text
    from etude.learn.model.named_checkpoint import checkpoint_folder

    wanted = measure or list(comparison.MEASURES)
    if unknown := sorted(set(wanted) - set(comparison.MEASURES)):
        raise UnknownMeasure(f"there is no measure {unknown[0]!r}; there are {', '.join(comparison.MEASURES)}")
    extent = replace(QUICK if quick else Extent(), seed=seed)
    extent = extent if max_bytes is None else replace(extent, most_bytes=max_bytes)
    found, kept = compared_checkpoints([checkpoint_folder(one) for one in checkpoints]), ResultCache(out)
    asked = material(found, on, sessions or [], extent, context)
    if dry_run:
        return _planned(comparison.plan(found, asked, extent, wanted, kept))
    document = comparison.compare(found, asked, extent, wanted, kept, _say)
    return Answer(document, text(document))


def _planned(document: dict[str, Any]) -> Answer:
    from etude.evaluate.bench.bases.text import material_text

    there = [f"  {name}: {', '.join(names) or 'nothing'} measured already" for name, names in document["kept"].items()]
    return Answer(document, "\n".join([material_text(document), *there]))


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
