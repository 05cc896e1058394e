"""`etude bench`: suites asked of policies, compared and audited; without a verb, the bench of a recipe."""

from __future__ import annotations

import typer

from etude.cli.bench import audit, compare, import_, judge, lite, make, recipe, refresh, run, show, wires
from etude.cli.fallback import FallbackGroup
from etude.cli.settings_command import settings_command

# The verb to use if none is given: `etude bench laptop` must keep working.
FALLBACK = "recipe"


class BenchGroup(FallbackGroup):
    """Reads words that begin with none of its verbs as those of `recipe`."""

    fallback = FALLBACK
    thing = "recipe"

    def names(self, word: str) -> bool:
        from etude.pipeline.recipe.errors import RecipeError
        from etude.pipeline.recipe.read import find_recipe

        try:
            find_recipe(word)
        except RecipeError:
            return False
        return True


app = typer.Typer(
    cls=BenchGroup,
    help="Run a benchmark suite with several policies and judge their attempts. [RECIPE]... without a verb is `etude bench recipe`.",
)
app.command("run", cls=settings_command("--policy", "--passes", "--max-cost", "--out", "--effort", "--tasks"))(run.run)
app.command("audit")(audit.audit)
app.command("judge")(judge.judge)
app.command(FALLBACK)(recipe.bench)
app.command(
    "make", cls=settings_command("--from-sessions", "--from-tasks", "--repository", "--rubrics", "--out", "--count")
)(make.make)
app.command("refresh", cls=settings_command("--from-sessions", "--run", "--repository", "--out", "--count"))(
    refresh.refresh
)
app.add_typer(import_.app, name="import")
app.command("compare")(compare.compare)
app.command("lite")(lite.lite)
app.command("show")(show.show)
app.command("wires")(wires.wires)

__all__ = ["app"]
