"""Stage long: positions stretched by YaRN, then trained at their new length on long documents, with a share of what came before."""

from __future__ import annotations

from dataclasses import asdict

from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import load_checkpoint
from etude.model.stretch import reached, stretch
from etude.run.stage import Context
from etude.run.stages.pretraining import CHECKPOINT, leave, phase, train_phase


def run(context: Context) -> None:
    """Leaves `checkpoint/` and `summary.json`."""
    short = context.of("short") / CHECKPOINT
    model = _stretched(context, load_checkpoint(short))
    result = train_phase(context, model, short)
    leave(context, model, short, asdict(result))


def _stretched(context: Context, model: CausalLM) -> CausalLM:
    """By the phase's factor, from the length that the model knows: a given checkpoint's own, else the rows it was trained on here."""
    factor = phase(context, "long").yarn_factor
    if factor == 1:
        return model
    given = bool(context.recipe.model.init) or model.config.yarn is not None
    trained = reached(model.config) if given else phase(context, "short").row_tokens
    longer = stretch(model, trained, factor)
    context.log.note(context.stage, f"positions stretched from {trained:,} to {longer.config.max_positions:,}")
    return longer
