"""A checkpoint directory that answers in this process: what `etude agent --model DIR` and `etude acp` start."""

from __future__ import annotations

from pathlib import Path

from etude.agent.chat.renderer import Renderer
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.checkpoint import load_checkpoint


def open_checkpoint(folder: Path, name: str, renderer: Renderer) -> tuple[EnginePolicy, int]:
    """A policy over the checkpoint in `folder`, for one session at a time, and the model's context window in tokens. Raises CheckpointError."""
    model = load_checkpoint(folder)
    window = model.config.context_length
    settings = EngineSettings(max_slots=1, max_batch=1, max_len=window)
    return EnginePolicy.start(model, settings, name=name, renderer=renderer), window
