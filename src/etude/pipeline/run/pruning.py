"""The graph of one recipe: stages left out (`run.without`), and what a named checkpoint makes needless.

What follows a stage left out depends on what that depended on; a stage that reads a checkpoint named by the recipe needs no stage for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.plan import PlanError, flat_settings
from etude.pipeline.run.stage import Stage


def graph_of(recipe: Recipe, graph: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """`graph` as this recipe wants it. Raises PlanError."""
    whole = flat_settings(recipe.model_dump(mode="json"), tuple({key for s in graph for key in s.stand_ins.values()}))
    named = {key for key, value in whole.items() if value}
    free = [replace(s, after=tuple(n for n in s.after if s.stand_ins.get(n) not in named)) for s in graph]
    return prune(tuple(free), recipe.run.without)


def prune(graph: tuple[Stage, ...], without: Collection[str]) -> tuple[Stage, ...]:
    """The graph without these stages. Raises PlanError for a stage that there isn't, or that one that stays can't do without."""
    order = [stage.name for stage in graph]
    for name in without:
        if name not in order:
            raise PlanError(f"run.without names {name!r}, which is no stage; the stages are {', '.join(order)}")
    left_out: dict[str, Stage] = {}
    kept: list[Stage] = []
    for stage in graph:
        if stage.name in without:
            left_out[stage.name] = replace(stage, after=_without(stage.after, left_out))
            continue
        needed = [name for name in stage.after if name in left_out and stage.name not in left_out[name].spared_by]
        if needed:
            raise PlanError(
                f"run.without names {needed[0]}, which {stage.name} needs: leave {stage.name} out too, or neither"
            )
        kept.append(
            replace(
                stage, after=_without(stage.after, left_out), also=tuple(n for n in stage.also if n not in left_out)
            )
        )
    return tuple(kept)


def _without(after: tuple[str, ...], left_out: dict[str, Stage]) -> tuple[str, ...]:
    """Each stage left out replaced by those before it, none named twice."""
    found: dict[str, None] = {}
    for name in after:
        found |= dict.fromkeys(left_out[name].after if name in left_out else (name,))
    return tuple(found)
