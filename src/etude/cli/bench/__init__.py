"""`etude bench`: suites asked of policies, compared and audited; without a verb, the bench of a recipe or an endpoint."""

from __future__ import annotations

import difflib
from typing import Any

import typer
from typer.core import TyperGroup

from etude.cli.bench import audit, compare, import_, judge, lite, make, recipe, run, show

# What is meant where no verb stands: `etude bench laptop` and `etude bench --model URL` are as old as the command.
FALLBACK = "recipe"


class BenchGroup(TyperGroup):
    """Reads words that begin with none of its verbs as those of `recipe`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        verb = args[0] if args else ""
        if verb not in {*self.commands, *self.get_help_option_names(ctx)}:
            self._refuse_slip(verb)
            args = [FALLBACK, *args]
        return super().parse_args(ctx, args)

    def _refuse_slip(self, word: str) -> None:
        """A verb misspelt would else be told to be no recipe."""
        near = difflib.get_close_matches(word, self.commands, 1)
        if not near:
            return
        from etude.recipe.errors import RecipeError
        from etude.recipe.read import find_recipe

        try:
            find_recipe(word)
        except RecipeError as absent:
            raise typer.BadParameter(f"there is no verb and no recipe {word!r}; did you mean {near[0]}?") from absent


app = typer.Typer(
    cls=BenchGroup,
    help="Ask a suite of policies and judge them. [RECIPE]... or --model URL without a verb is `etude bench recipe`.",
)
app.command("run")(run.run)
app.command("audit")(audit.audit)
app.command("judge")(judge.judge)
app.command(FALLBACK)(recipe.bench)
app.command("make")(make.make)
app.add_typer(import_.app, name="import")
app.command("compare")(compare.compare)
app.command("lite")(lite.lite)
app.command("show")(show.show)

__all__ = ["app"]
