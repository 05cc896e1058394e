"""The model of a stage: its checkpoint, computed by what `model.impl` names, with a line in the event log that says whose code it is."""

from __future__ import annotations

from pathlib import Path

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.transformers_backend.config import describe_implementation
from etude.learn.model.transformers_backend.language_model import TransformersLM
from etude.pipeline.run.stage import Context


def load_model(context: Context, folder: Path | str, *, drafts: bool = False) -> CausalLM:
    """Raises CheckpointError or UnsupportedConfig."""
    impl = context.recipe.model.impl
    model = load_checkpoint(folder, drafts=drafts, impl=impl)
    way = f", {model.way}" if isinstance(model, TransformersLM) else ""
    context.log.note(context.stage, describe_implementation(folder, impl) + way)
    return model
