"""One safetensors file in Hugging Face layout whose bytes are also a state in our own: written by hand, for its order matters.

A tensor of ours is several of theirs under one another (each expert, each half of a fused matrix). Where those lie side by side in the
file, ours is a view of the same bytes, so a node holds the weights once for both.
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.learn.model.hf_keys import to_hf
from etude.learn.weights.digest import State, bits, dtype_name

CODES = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}
# In the file's metadata, as JSON: dtype, shape, start and the keys of each of our tensors.
OURS = "etude.state"


class StateFile:
    """An open file: `state` are our tensors, `parts` the file's under the names of ours. Writing to one writes to the file."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        length = int.from_bytes(self._map[:8], "little")
        self._data = 8 + length
        header = json.loads(self._map[8 : self._data])
        self.state: dict[str, Tensor] = {}
        self.parts: dict[str, dict[str, Tensor]] = {}
        for name, (dtype, shape, start, keys) in json.loads(header["__metadata__"][OURS]).items():
            self.state[name] = self._view(dtype, shape, start)
            places = {key: header[key] for key in keys}
            self.parts[name] = {k: self._view(dtype, p["shape"], p["data_offsets"][0]) for k, p in places.items()}

    def fits(self, state: State) -> bool:
        """Whether `state` has the same names, types and shapes."""
        return _shapes(state) == _shapes(self.state)

    def _view(self, dtype: str, shape: list[int], start: int) -> Tensor:
        count = torch.Size(shape).numel()
        flat = torch.frombuffer(self._map, dtype=getattr(torch, dtype), count=count, offset=self._data + start)
        return flat.view(shape)


def write_state_file(path: Path, state: State, layers: int) -> None:
    """`state` of a model with this many layers. Raises ValueError for a type that these files have no name for."""
    header: dict[str, Any] = {}
    ours: dict[str, list[Any]] = {}
    # The widest elements first: every tensor then begins at a multiple of its own.
    order = sorted(state, key=lambda name: -state[name].element_size())
    end = 0
    for name in order:
        dtype, start, keys = dtype_name(state[name].dtype), end, []
        if dtype not in CODES:
            raise ValueError(f"{name} is {dtype}; vLLM's copy holds {', '.join(CODES)}")
        for key, part in to_hf({name: state[name]}, layers):
            header[key] = {
                "dtype": CODES[dtype],
                "shape": list(part.shape),
                "data_offsets": [end, end + part.nbytes],
            }
            end += part.nbytes
            keys.append(key)
        ours[name] = [dtype, list(state[name].shape), start, keys]
    # "format": transformers refuses files without this mark.
    text = json.dumps({"__metadata__": {"format": "pt", OURS: json.dumps(ours)}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(bits(state[name]).data)


def _shapes(state: State) -> dict[str, tuple[str, torch.Size]]:
    return {name: (dtype_name(tensor.dtype), tensor.shape) for name, tensor in state.items()}
