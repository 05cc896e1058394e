"""`etude ablate`: one setting at several values and seeds, the rest alike, and the line through what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides

if TYPE_CHECKING:
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.ablation import Ablation


def ablate(
    name: Annotated[
        str, typer.Argument(metavar="FILE", help="An ablation: a path, or one that comes with Etude, such as cpt.")
    ],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder. Default: runs/ablations/<name>/.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and what they share, run none.")] = False,
    json: Json = False,
) -> Answer:
    """Vary one setting of a recipe over several seeds and fit a line. Stopped at any point, the same command goes on."""
    ablation = _open(_find(name), overrides or [], out)
    if dry_run:
        return _plan(ablation)
    for cell in ablation.run():
        typer.echo(f"{cell.name} done", err=True)
    result = ablation.save()
    return Answer({"ablation": str(ablation.folder), **result}, _table(result))


def _find(name: str) -> Path:
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.recipe.read import shipped_folders

    path = Path(name)
    folders = [folder / "ablations" for folder in shipped_folders()]
    for candidate in (path, *(folder / f"{name}.toml" for folder in folders)):
        if candidate.is_file():
            return candidate
    shipped = sorted({file.stem for folder in folders for file in folder.glob("*.toml")})
    raise RecipeError([f"{name}: there is no such ablation file; those that come with Etude: {', '.join(shipped)}"])


def _open(file: Path, overrides: list[str], out: Path | None) -> Ablation:
    from pydantic import ValidationError

    from etude.cli.prepare import with_model_limits
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.recipe.read import find_recipe, parse, read_recipe
    from etude.pipeline.run.ablation import Ablation
    from etude.pipeline.run.ablation_settings import AblationSettings

    try:
        settings = AblationSettings.model_validate(parse(file))
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RecipeError([f"{file}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found]) from None
    recipe = find_recipe(settings.recipe)

    def resolve(cell: list[str]) -> Recipe:
        return with_model_limits(read_recipe([recipe], [*settings.overrides, *overrides, *cell]))

    return Ablation(settings, resolve, out or Path("runs/ablations") / settings.name)


def _plan(ablation: Ablation) -> Answer:
    cells = [{"cell": cell.name, "done": ablation.done(cell)} for cell in ablation.cells]
    document: dict[str, Any] = {
        "ablation": str(ablation.folder), "stages": ablation.stages, "shared": ablation.shared, "cells": cells,
    }  # fmt: skip
    lines = [
        f"{ablation.folder}: {len(cells)} cells of {', '.join(ablation.stages)}",
        f"shared by the cells of a seed: {', '.join(ablation.shared) or 'nothing'}",
        *(f"  {cell['cell']}{'  done' if cell['done'] else ''}" for cell in cells),
    ]
    return Answer(document, "\n".join(lines))


def _table(result: dict[str, Any]) -> str:
    rows = [
        f"  seed {p['seed']}  {result['key'].rpartition('.')[2]} {p['budget']:>8}  loss {p['loss']:.4f}  reward {p['reward']:.3f}"
        for p in result["points"]
    ]
    return "\n".join([f"{result['name']}: reward after RL against loss after SFT", *rows, _verdict(result["fit"])])


def _verdict(fit: dict[str, Any] | None) -> str:
    if fit is None:
        return "too few points for a line"
    low, high = fit["ci95"]
    return f"{fit['verdict']}: slope {fit['slope']:+.2f} [{low:+.2f}, {high:+.2f}]"
