"""Whole weights for an engine from the adapters that RL's trainer publishes.

The trainer sends what it trains: A, B, DoRA's magnitudes, draft layers and biases of routers, a hundredth of the weights. Engines serve merged
weights, so a swap changes every session from its next token on, as without adapters, and a step costs what the plain model's does.
"""

from __future__ import annotations

from pathlib import Path

from etude.learn.engine.swap import DRAFTS
from etude.learn.model.adapters import add_adapters, load_trained_state, merged_state
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import Impl
from etude.learn.weights.state import State


class AdapterMerger:
    """Holds the base once, in fp32 as the trainer does. One thread at a time."""

    def __init__(self, checkpoint: Path, lora: LoraSettings, impl: Impl = "auto") -> None:
        """`checkpoint`: the one that the trainer began with. Raises CheckpointError, and ValueError for a target that it does not have."""
        self._model = load_checkpoint(checkpoint, impl=impl)
        add_adapters(self._model, lora)

    def __call__(self, published: State) -> State:
        """The state of the plain model that computes the same: changed weights are new tensors, the others those held here. Draft layers stay as they
        were published. Raises ValueError for adapters of other settings, or of another model."""
        drafts = {name: tensor for name, tensor in published.items() if name.startswith(DRAFTS)}
        load_trained_state(self._model, {name: tensor for name, tensor in published.items() if name not in drafts})
        return merged_state(self._model) | drafts


def merger_for(checkpoint: Path, lora: LoraSettings, impl: Impl = "auto") -> AdapterMerger | None:
    """None where the trainer trains, and publishes, all weights."""
    return AdapterMerger(checkpoint, lora, impl) if lora.rank else None
