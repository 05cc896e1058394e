"""`etude pretrain`, `sft`, `rl`: one stage of a run, with the same recipe, directory and ledger as `etude run`."""

from __future__ import annotations

from etude.cli.answer import Answer
from etude.cli.option import Address, DryRun, Json, Out, Overrides, Recipes
from etude.cli.prepare import prepare
from etude.cli.run import go


def pretrain(
    recipes: Recipes = None, overrides: Overrides = None, out: Out = None, dry_run: DryRun = False, json: Json = False
) -> Answer:
    """Pretrain in its phases, with draft layers: the run's stages corpus, base, short, mtp and long."""
    found = prepare(recipes, overrides, out)
    wanted = ("corpus", "base", "short", "mtp", "long")
    return go(found, [stage.name for stage in found.graph if stage.name in wanted], dry_run=dry_run)


def sft(
    recipes: Recipes = None, overrides: Overrides = None, out: Out = None, dry_run: DryRun = False, json: Json = False
) -> Answer:
    """Fine-tune on the scripted expert's sessions: the run's stages sessions and sft."""
    return go(prepare(recipes, overrides, out), ["sessions", "sft"], dry_run=dry_run)


def rl(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Out = None,
    address: Address = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> Answer:
    """Train by asynchronous reinforcement learning in sandboxes: the run's rl stage."""
    return go(prepare(recipes, overrides, out, address), ["rl"], dry_run=dry_run)
