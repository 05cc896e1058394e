"""A node's copy of the weights, for all vLLM engines on it: a checkpoint directory in Hugging Face layout, brought from version to version
by deltas and checked there, bit by bit (promise 7).

One file, written in place, under a lock: a writer has it alone, engines read it together. `held.json` says what
is in it and is away while that changes, so a kill in the middle leaves a copy that is rebuilt from an anchor.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.core.files import replace_file
from etude.learn.engine.adapter_merger import AdapterMerger
from etude.learn.model.checkpoint import TOKENIZER_FILES, load_config
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_keys import place_of, to_hf
from etude.learn.weights.errors import CorruptTensor
from etude.learn.weights.receiver import ReceivedState, Receiver
from etude.learn.weights.state import State, bits, dtype_name, require_finite, state_digest, tensor_digest

# One safetensors file in Hugging Face layout whose bytes are also a state in our own: written by hand, for its order
# matters.
#
# A tensor of ours is several of theirs under one another (each expert, each half of a fused matrix). Where those lie
# side by side in the file, ours is a view of the same bytes, so a node holds the weights once for both.


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


def write_state_file(path: Path, state: State, config: ModelConfig) -> None:
    """`state` of a model. Raises ValueError for a type that these files have no name for, and for a family whose files lay tensors out
    otherwise than our memory."""
    header: dict[str, Any] = {}
    ours: dict[str, list[Any]] = {}
    # The widest elements first: every tensor then begins at a multiple of its own.
    order = sorted(state, key=lambda name: -state[name].element_size())
    end = 0
    for name in order:
        dtype, start, keys = dtype_name(state[name].dtype), end, []
        if dtype not in CODES:
            raise ValueError(f"{name} is {dtype}; vLLM's copy holds {', '.join(CODES)}")
        if place_of(name, config)[1].layout is not None:
            raise ValueError(f"{name} of {config.family} is laid out otherwise on disk: vLLM's copy can't hold it")
        for key, part in to_hf({name: state[name]}, config):
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


FILE, HELD, LOCK = "model.safetensors", "held.json", "lock"


@dataclass(frozen=True)
class HostCopyState:
    """What the copy holds: `digests` by key of the file."""

    version: int
    digests: dict[str, str]
    file: Path


class HostCopy:
    """One folder; any number of processes may have it open."""

    def __init__(self, folder: Path, checkpoint: Path, merge: AdapterMerger | None = None) -> None:
        """`checkpoint`: whose model it is; its configuration and tokenizer are next to the weights, so that any reader takes the folder. `merge`: of
        the base that received states are adapters of; the copy holds merged weights."""
        self.folder = folder
        self._merge = merge
        self._adapters: ReceivedState | None = None  # which deltas start from, where there is a base
        self._config = load_config(checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", *TOKENIZER_FILES):
            if (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, folder / name)

    def bring(self, receiver: Receiver, goal: int | None = None) -> ReceivedState:
        """To version `goal`, by default the newest of the store. Raises WeightsError and holds what it held, or nothing;
        NotFinite for weights that are not finite."""
        with self._locked(fcntl.LOCK_EX):
            held = self._held()
            file = None if held is None else StateFile(held.file)
            received = self._receive(receiver, held, file, goal)
            if held is None or file is None:
                self._write(None, {}, received)
            elif received.version != held.version or changed_tensors(file.state, received.state):
                self._write(file, held.digests, received)
            return received

    def _receive(
        self, receiver: Receiver, held: HostCopyState | None, file: StateFile | None, goal: int | None
    ) -> ReceivedState:
        """Whole weights of version `goal`, by deltas from those that are held here."""
        if self._merge is not None:
            before = self._adapters
            start = (None, None) if before is None else (before.state, before.version)
            self._adapters = received = receiver.catch_up(*start, goal=goal)
            return replace(received, state=dict(self._merge(received.state)))
        if held is None or file is None:
            return receiver.catch_up(goal=goal)
        return receiver.catch_up(file.state, held.version, goal=goal)

    @contextmanager
    def reading(self) -> Iterator[HostCopyState]:
        """What it holds, unchanged for as long as the block runs. Raises LookupError if it holds nothing."""
        with self._locked(fcntl.LOCK_SH):
            held = self._held()
            if held is None:
                raise LookupError(f"{self.folder} holds no weights: bring them there before an engine reads them")
            yield held

    def _write(self, file: StateFile | None, digests: dict[str, str], received: ReceivedState) -> None:
        require_finite(received.state, f"version {received.version} of the weights")
        (self.folder / HELD).unlink(missing_ok=True)
        path = self.folder / FILE
        digests = dict(digests)
        if file is None or not file.fits(received.state):
            side = path.with_suffix(".tmp")
            write_state_file(side, received.state, self._config)
            side.rename(path)
            file, digests = StateFile(path), {}
            fresh = list(file.state)
        else:
            fresh = changed_tensors(file.state, received.state)
            for name in fresh:
                bits(file.state[name])[:] = bits(received.state[name])
        if state_digest(file.state) != state_digest(received.state):
            raise CorruptTensor(
                f"{path} is not what version {received.version} is, bit by bit: look at the disk's health"
            )
        digests |= {key: tensor_digest(part) for name in fresh for key, part in file.parts[name].items()}
        replace_file(self.folder / HELD, json.dumps({"version": received.version, "digests": digests}))

    def _held(self) -> HostCopyState | None:
        path = self.folder / HELD
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        return HostCopyState(found["version"], found["digests"], self.folder / FILE)

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with open(self.folder / LOCK, "a") as lock:
            fcntl.flock(lock, how)
            yield


def changed_tensors(old: State, new: State) -> list[str]:
    """Names of the tensors of `new` whose bits are not those of `old`; both have the same names and shapes."""
    return [name for name in new if name not in old or not np.array_equal(bits(old[name]), bits(new[name]))]
