"""A group of verbs whose words without a verb go to one of them: `etude report runs/laptop` is `etude report rebuild runs/laptop`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from etude.core.spelling import similar


class FallbackGroup(TyperGroup):
    """Subclasses name the verb in `fallback`. A word that is nearly a verb and names no `thing` is reported as a misspelling."""

    fallback = ""
    thing = "folder"

    def names(self, word: str) -> bool:
        """Whether the word names what the fallback takes."""
        return Path(word).exists()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        verb = args[0] if args else ""
        if verb not in {*self.commands, *self.get_help_option_names(ctx)}:
            near = similar(verb, self.commands)
            if near and not self.names(verb):
                raise typer.BadParameter(f"there is no verb and no {self.thing} {verb!r}; did you mean {near[0]}?")
            args = [self.fallback, *args]
        return super().parse_args(ctx, args)
