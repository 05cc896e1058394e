"""Checks what the chosen engine can't do of a recipe: refused, or logged, before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.found import vllm_version
from etude.learn.model.checkpoint import load_config
from etude.rl.settings import RlSettings

FAMILIES = ("qwen3_moe",)


def check_engine(settings: RlSettings, engine: EngineSettings, checkpoint: Path) -> None:
    """Raises ValueError where the run asks for what vLLM does not give."""
    if engine.kind != "vllm":
        return
    if (family := load_config(checkpoint).family) not in FAMILIES:
        raise ValueError(
            f'engine.kind = "vllm" with {checkpoint}, which is {family}: what vLLM samples from has been shown to be what the trainer computes '
            f"for {', '.join(FAMILIES)} alone, and not to be for latent attention (docs/vllm.md); take our own engine"
        )
    if settings.update.router_replay:
        raise ValueError(
            'rl.update.router_replay = true with engine.kind = "vllm": vLLM tells no routed experts, so there is nothing to replay; leave it '
            "out, or take our own engine"
        )
    if settings.drafts.every:
        raise ValueError(
            f'rl.drafts.every = {settings.drafts.every} with engine.kind = "vllm": drafts are for our own engine; set it to 0'
        )


def log_engine(engine: EngineSettings, note: Callable[[str], None]) -> None:
    """Says what is different with vLLM. Raises NoVllm where it is not there."""
    if engine.kind == "vllm":
        version = vllm_version(engine.vllm.python)
        note(f"vLLM {version} answers, in {engine.vllm.dtype}; router replay is off, for it tells no routed experts")
