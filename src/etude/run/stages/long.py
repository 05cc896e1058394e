"""Stage long: positions stretched by YaRN, then trained at their new length on long documents, with a share of what came before.

The trunk is the short phase's, the draft layers are the mtp stage's; they go on side by side.
"""

from __future__ import annotations

from dataclasses import asdict

from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import load_checkpoint
from etude.model.stretch import reached, stretch
from etude.run.stage import Context
from etude.run.stages.pretraining import CHECKPOINT, leave, phase, train_phase


def run(context: Context) -> None:
    """Leaves `checkpoint/` and `summary.json`."""
    before = context.of("base" if "short" in context.recipe.run.without else "short") / CHECKPOINT
    model = load_checkpoint(before)
    if "mtp" not in context.recipe.run.without:
        model = _with_trunk(load_checkpoint(context.of("mtp") / CHECKPOINT, drafts=True), model)
    model = _stretched(context, model)
    result = train_phase(context, model, before)
    leave(context, model, before, asdict(result))


def _with_trunk(drafted: CausalLM, trunk: CausalLM) -> CausalLM:
    """`drafted` with the trunk's own tensors."""
    drafted.load_state_dict(drafted.state_dict() | trunk.state_dict(), assign=True)
    return drafted


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
