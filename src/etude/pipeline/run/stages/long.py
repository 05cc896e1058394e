"""Stage long: positions stretched by YaRN, then trained at their new length on long documents, with a share of what came before.

The draft layers of stage mtp, which learnt behind an earlier trunk, train on together with this one.
"""

from __future__ import annotations

from dataclasses import asdict

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.init import adopt_drafts
from etude.learn.model.stretch import reachable_positions, stretch
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.loading import load_model
from etude.pipeline.run.stages.pretraining import CHECKPOINT, leave, phase, train_phase


def run(context: Context) -> None:
    """Leaves `checkpoint/` and `summary.json`."""
    before = context.of("base" if "short" in context.recipe.run.without else "short") / CHECKPOINT
    model = _stretched(context, load_model(context, before))
    if "mtp" not in context.recipe.run.without:
        model = adopt_drafts(model, context.of("mtp") / CHECKPOINT)
    result = train_phase(context, model, before)
    leave(context, model, before, asdict(result))


def _stretched(context: Context, model: CausalLM) -> CausalLM:
    """By the phase's factor, from the length that the model knows: a given checkpoint's own, else the rows it was trained on here."""
    factor = phase(context, "long").yarn_factor
    if factor == 1:
        return model
    given = bool(context.recipe.model.init) or model.config.yarn is not None
    trained = reachable_positions(model.config) if given else phase(context, "short").row_tokens
    longer = stretch(model, trained, factor)
    context.log.note(context.stage, f"positions stretched from {trained:,} to {longer.config.max_positions:,}")
    return longer
