"""`etude bench [recipe]`: the run's own bench stage."""

from __future__ import annotations

from etude.cli.answer import Answer
from etude.cli.option import DryRun, Json, Out, Overrides, Recipes
from etude.cli.prepare import prepare
from etude.cli.run import go


def bench(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Out = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Compare the run's checkpoints on held-out tasks."""
    return go(prepare(recipes, overrides, out), ["trials", "bench"], dry_run=dry_run)
