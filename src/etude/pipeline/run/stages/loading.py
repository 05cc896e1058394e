"""The model of a stage: its checkpoint, computed by what `model.impl` names, and the engine over it. A line in the event log says whose code
computes."""

from __future__ import annotations

from pathlib import Path

from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.service import leave_cores_to_engine
from etude.learn.engine.vllm.found import vllm_version
from etude.learn.engine.vllm.policy import VllmPolicy
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


def open_policy(context: Context, folder: Path, name: str, **changes: object) -> EnginePolicy | VllmPolicy:
    """What samples from a checkpoint in a stage: the recipe's engine, with `changes` to its settings; `close` ends it. Many sessions at once
    decode quicker without drafts, so there are none. Raises CheckpointError, UnsupportedConfig, and NoVllm where the recipe's Python has no vLLM."""
    engine = context.recipe.engine.model_copy(update={"draft_tokens": 0} | changes)
    if engine.kind == "etude":
        leave_cores_to_engine()
        return EnginePolicy.start(load_model(context, folder), engine, name=name)
    log = context.folder / "vllm" / f"{name}.log"
    context.log.note(
        context.stage,
        f"vLLM {vllm_version(engine.vllm.python)} answers for {name}, in {engine.vllm.dtype}; it prints to {log}",
    )
    return VllmPolicy(folder, engine, log, name)
