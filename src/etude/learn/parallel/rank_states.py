"""Training states of several ranks: a folder into which each rank writes the parts that it has, read by any number of ranks or by one process.

PyTorch's distributed checkpoint (DCP) writes and reads them, as safetensors, so that nothing that is read is run. Every tensor has the name and the
shape that one process has for it; which part of it lies in which file is in the files' headers. What is no tensor is in another file of the folder,
as the first rank had it. So no file of one rank can pass for the whole model, and any layout reads what any other wrote.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from etude.core.files import sync_folder

PLAIN = "plain.pt"
STATE, SHAPES = "state", "shapes"  # in that file
MODEL, OPTIMIZERS = "model", "optimizers"  # with what the names of a state's tensors begin
Tensors = dict[str, Tensor]


def taken_apart(state: Mapping[str, Any]) -> tuple[dict[str, Any], Tensors]:
    """A training state (`model`, `optimizers` and others) without the tensors of the model and the moments, and these by name."""
    tensors = {f"{MODEL}/{name}": tensor for name, tensor in state[MODEL].items()}
    optimizers = []
    for place, optimizer in enumerate(state[OPTIMIZERS]):
        rest: dict[int, dict[str, Any]] = {}
        for number, held in optimizer["state"].items():
            rest[number] = {}
            for key, value in held.items():
                if isinstance(value, Tensor) and value.ndim:
                    tensors[f"{OPTIMIZERS}/{place}/{number}/{key}"] = value
                else:
                    rest[number][key] = value
        optimizers.append({**optimizer, "state": rest})
    return {**state, MODEL: None, OPTIMIZERS: optimizers}, tensors


def put_together(plain: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The way back."""
    plain[MODEL] = {}
    for name, tensor in tensors.items():
        kind, rest = name.split("/", 1)
        if kind == MODEL:
            plain[MODEL][rest] = tensor
        else:
            place, number, key = rest.split("/")
            plain[OPTIMIZERS][int(place)]["state"][int(number)][key] = tensor
    return plain


def write_parts(folder: Path, state: Mapping[str, Any], tensors: Tensors, *, first: bool) -> None:
    """Called by all ranks, with DTensors where a rank has a part. `folder` is new, and the first rank made it. Raises RuntimeError."""
    _quietly(lambda: save(tensors, storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True)))
    if first:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}  # of a DTensor the whole's
        with (folder / PLAIN).open("wb") as file:
            torch.save({STATE: dict(state), SHAPES: shapes}, file)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)


def read_plain(folder: Path) -> tuple[dict[str, Any], Tensors]:
    """What is no tensor of the model and no moment; the names, shapes and types of these, on the meta device. Raises ValueError where a part is in
    no file: DCP would leave it as it is."""
    plain = torch.load(folder / PLAIN, map_location="cpu", weights_only=True)
    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    tensors: Tensors = {}
    for name, shape in plain[SHAPES].items():
        held = found.get(name)
        there = sum(chunk.sizes.numel() for chunk in held.chunks) if isinstance(held, TensorStorageMetadata) else 0
        if there != torch.Size(shape).numel() or not isinstance(held, TensorStorageMetadata):
            raise ValueError(f"of {torch.Size(shape).numel():,} numbers of {name} its files hold {there:,}")
        tensors[name] = torch.empty(shape, dtype=held.properties.dtype, device="meta")
    return plain[STATE], tensors


def read_parts(folder: Path, tensors: Tensors, *, alone: bool = False) -> None:
    """Fills tensors, or the parts that this rank has. Called by all ranks, or by one process `alone`. Raises RuntimeError."""
    _quietly(lambda: load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=alone))


def read_whole(folder: Path) -> dict[str, Any]:
    """The whole state, in one process."""
    plain, like = read_plain(folder)
    tensors = {name: torch.empty_like(tensor, device="cpu") for name, tensor in like.items()}
    read_parts(folder, tensors, alone=True)
    return put_together(plain, tensors)


def _quietly(work: Any) -> None:
    """Without DCP's warning that one process reads alone. Its own exception is none that a handler of exceptions sees."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            work()
        except CheckpointException as error:
            rank, (reason, _) = next(iter(error.failures.items()))
            raise RuntimeError(f"rank {rank}: {type(reason).__name__}: {reason}") from error
