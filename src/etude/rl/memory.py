"""Memory that a step of the trainer or the engine frees stays with the process: the next step wants as much again.

glibc hands large blocks back to the kernel, which clears every page again when they are needed next: 0.4 million faults, 0.5 to
0.7 core-seconds of a training step of 3. The peak is the same either way.
"""

from __future__ import annotations

import ctypes

# mallopt(3): parameter numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
# The largest values that glibc takes (HEAP_MAX / 2; an int), and the heap grows by as much as a large block at a time.
_MMAP_BYTES, _TRIM_BYTES, _PAD_BYTES = 32 << 20, (1 << 31) - 1, 64 << 20


def keep_freed_memory() -> bool:
    """For this process from now on; False where the C library is another one, which then does as it likes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = {_MMAP_THRESHOLD: _MMAP_BYTES, _TRIM_THRESHOLD: _TRIM_BYTES, _TOP_PAD: _PAD_BYTES}
    return all([mallopt(parameter, value) == 1 for parameter, value in wanted.items()])
