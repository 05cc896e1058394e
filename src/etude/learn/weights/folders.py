"""The weights of a checkpoint directory, as a state."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from etude.learn.weights.hf_files import INDEX, SINGLE, CheckpointError, tensor_files


def read_state(folder: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint directory, each from the file that its index names; without index and model.safetensors those of all files.

    Raises FileNotFoundError if there are none, CheckpointError for a damaged index or file.
    """
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise FileNotFoundError(f"{folder} holds no *.safetensors; give a checkpoint directory")
    indexed = (folder / INDEX).exists() or (folder / SINGLE).exists()
    files: dict[str, frozenset[str] | None] = tensor_files(folder) if indexed else dict.fromkeys(names)
    state: dict[str, torch.Tensor] = {}
    for name, listed in files.items():
        try:
            with safe_open(folder / name, framework="pt") as tensors:
                there = set(tensors.keys())
                if absent := sorted((listed or there) - there):
                    raise CheckpointError(
                        f"{folder / name} lacks {absent[0]}, which {INDEX} says is there; the checkpoint is incomplete"
                    )
                state.update({key: tensors.get_tensor(key) for key in (listed or there)})
        except SafetensorError as error:
            raise CheckpointError(f"{folder / name} can't be read ({error}); the checkpoint is damaged") from error
    return state
