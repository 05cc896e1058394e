"""Where a model computes: on the CPU, or on the one GPU that this process is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Of a CPU with AVX-512 that is not Intel's, torch's own kernels (MKL, fused attention) use half: products and attention of this package are faster
# there. On an Intel Xeon of 2023 torch's take 0.55 to 0.85 of their time.
AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
INTEL = str(torch.cpu.get_capabilities().get("cpu_name", "")).startswith("Intel")
OWN_KERNELS = AVX512 and not INTEL


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
def on_device(model: nn.Module, name: str, key: str) -> Iterator[None]:
    """The model on that device within the block, and on the CPU after it; kernels are reproducible from then on (`compute_reproducibly`).
    What holds its parameters is to be made inside: they may be new objects. Raises DeviceMissing."""
    device = device_of(name, key)
    compute_reproducibly(device)
    model.to(device)
    try:
        yield
    finally:
        model.to("cpu")


def compute_reproducibly(device: torch.device) -> None:
    """The whole process takes kernels that give the same bits each time from now on: exact resume compares digests.

    On a CPU they do so by themselves. On a GPU an operation without such a kernel raises RuntimeError with its name. A warning would not do:
    the backward pass of memory-efficient attention stays irreproducible under `warn_only` (seen on an H200, PyTorch 2.11).
    """
    if device.type == "cpu":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first product
    torch.use_deterministic_algorithms(True)
