"""The graph of one recipe: stages left out (`run.without`), and what a named checkpoint makes needless.

What follows a stage left out depends on what that depended on; a stage that reads a checkpoint named by the recipe needs no stage for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.plan import PlanError, flat_settings
from etude.pipeline.run.stage import Stage

# Width from which a step's products use several threads well.
WIDE = 512
TRAINING = ("base", "short", "mtp", "long", "sft", "competent_sft")


def graph_of(recipe: Recipe, graph: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """`graph` as this recipe wants it. Raises PlanError."""
    whole = flat_settings(recipe.model_dump(mode="json"), tuple({key for s in graph for key in s.stand_ins.values()}))
    named = {key for key, value in whole.items() if value}
    free = [replace(s, after=tuple(n for n in s.after if s.stand_ins.get(n) not in named)) for s in graph]
    kept = prune(tuple(free), recipe.run.without)
    _require_substitutes(recipe, graph, kept)
    return kept


def with_shares(graph: tuple[Stage, ...], hidden_size: int) -> tuple[Stage, ...]:
    """`graph` for a model of this width: stages that train a wide one take all cores, one after the other. Products of a small model take little less
    time on two threads than on one, so there two stages run at a time."""
    if hidden_size < WIDE:
        return graph
    return tuple(replace(stage, share=1.0) if stage.name in TRAINING else stage for stage in graph)


def _require_substitutes(recipe: Recipe, graph: tuple[Stage, ...], kept: tuple[Stage, ...]) -> None:
    """Raises PlanError where a stage reads a setting in place of one that is left out, and the setting is empty."""
    values, before = recipe.model_dump(mode="json"), {stage.name: stage.reads for stage in graph}
    for stage in graph:
        key = stage.substitute
        readers = [one.name for one in kept if key in one.reads and key not in before[one.name]]
        if stage.name in recipe.run.without and readers and not flat_settings(values, (key,)).get(key):
            raise PlanError(
                f"run.without names {stage.name}, so {readers[0]} would read the checkpoint that {key} names, and it names none: "
                f"set {key}, or take {stage.name} out of run.without"
            )


def prune(graph: tuple[Stage, ...], without: Collection[str]) -> tuple[Stage, ...]:
    """The graph without these stages. Raises PlanError for a stage that there isn't, or that one that stays can't do without."""
    order = [stage.name for stage in graph]
    for name in without:
        if name not in order:
            raise PlanError(f"run.without names {name!r}, which is no stage; the stages are {', '.join(order)}")
    left_out: dict[str, Stage] = {}
    kept: list[Stage] = []
    for stage in graph:
        instead = [left_out[name].substitute for name in stage.after if name in left_out and left_out[name].substitute]
        if stage.name in without:
            substitute = stage.substitute or next(iter(instead), "")
            left_out[stage.name] = replace(stage, after=_without(stage.after, left_out), substitute=substitute)
            continue
        needed = [name for name in stage.after if name in left_out and stage.name not in left_out[name].spared_by]
        if needed:
            raise PlanError(
                f"run.without names {needed[0]}, which {stage.name} needs: leave {stage.name} out too, or neither"
            )
        reads = (*stage.reads, *(key for key in dict.fromkeys(instead) if key not in stage.reads))
        also = tuple(name for name in stage.also if name not in left_out)
        kept.append(replace(stage, after=_without(stage.after, left_out), also=also, reads=reads))
    return tuple(kept)


def _without(after: tuple[str, ...], left_out: dict[str, Stage]) -> tuple[str, ...]:
    """Each stage left out replaced by those before it, none named twice."""
    found: dict[str, None] = {}
    for name in after:
        found |= dict.fromkeys(left_out[name].after if name in left_out else (name,))
    return tuple(found)
