"""The weights of a checkpoint directory, as a state."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor


def read_state(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's safetensors files. Raises FileNotFoundError if there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no *.safetensors; give a checkpoint directory")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            state.update({name: tensors.get_tensor(name) for name in tensors.keys()})
    return state
