"""What becomes of memory that a training step or an engine frees: it stays with the process, or goes back to the system.

A small model's step is a few seconds of small tensors. glibc hands large blocks back to the kernel, which clears every page again when they are
needed next: 0.4 million faults, 0.5 to 0.7 core-seconds of a step of 3. So there the memory stays; the peak is the same either way.

Of a large model, freed blocks between blocks in use add up. A step of SmolLM2-135M (2,672 tokens, recompute) takes 2.7 GB when every block of a
megabyte goes back, and 4.0 GB by glibc's own rule, for which each freed block raises the size from which blocks go back. So there they go back.
"""

from __future__ import annotations

import ctypes

from torch import nn

# Parameters from which a model is large: of one that takes 200 MB in fp32.
LARGE_PARAMETERS = 50_000_000
# mallopt(3): parameter numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
# The largest values that glibc takes (HEAP_MAX / 2; an int), and the heap grows by as much as a large block at a time.
_MMAP_BYTES, _TRIM_BYTES, _PAD_BYTES = 32 << 20, (1 << 31) - 1, 64 << 20
_RETURNED_BYTES = 1 << 20


def fit_heap(model: nn.Module) -> bool:
    """For this process from now on: keeps what is freed for a small model, returns it for a large one. False where the C library is another one,
    which then does as it likes."""
    large = sum(parameter.numel() for parameter in model.parameters()) >= LARGE_PARAMETERS
    return return_freed_memory() if large else keep_freed_memory()


def keep_freed_memory() -> bool:
    """For this process from now on; False where the C library is another one."""
    return _set({_MMAP_THRESHOLD: _MMAP_BYTES, _TRIM_THRESHOLD: _TRIM_BYTES, _TOP_PAD: _PAD_BYTES})


def return_freed_memory() -> bool:
    """Of blocks from a megabyte on, for this process from now on; False where the C library is another one."""
    return _set({_MMAP_THRESHOLD: _RETURNED_BYTES, _TRIM_THRESHOLD: _RETURNED_BYTES, _TOP_PAD: 0})


def _set(wanted: dict[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all([mallopt(parameter, value) == 1 for parameter, value in wanted.items()])
