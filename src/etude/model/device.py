"""Where a model computes: on the CPU, or on the one GPU that this process is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class DeviceMissing(Exception):
    """A device was asked for that this process has not."""


def device_of(name: str, key: str) -> torch.device:
    """What the setting `key` names. Raises DeviceMissing where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda or "no CUDA"
        raise DeviceMissing(
            f'{key} = "cuda", and PyTorch {torch.__version__} (built for {built}) finds no GPU in this process: install the CUDA build, see '
            'that nvidia-smi lists one and CUDA_VISIBLE_DEVICES does not hide it, or set it to "cpu"'
        )
    return torch.device(name)


@contextmanager
def moved(model: nn.Module, name: str, key: str) -> Iterator[None]:
    """The model on that device within the block, and on the CPU after it. What holds its parameters is to be made inside: they may be new
    objects. Raises DeviceMissing."""
    model.to(device_of(name, key))
    try:
        yield
    finally:
        model.to("cpu")


def compute_reproducibly(device: torch.device) -> None:
    """From now on the whole process takes kernels that come to the same bits each time: exact resume compares digests. A CPU's do by
    themselves; on a GPU an operation that has no such kernel is warned of."""
    if device.type == "cpu":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first product
    torch.use_deterministic_algorithms(True, warn_only=True)
