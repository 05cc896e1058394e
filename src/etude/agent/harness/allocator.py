"""One thing that a growing prompt asks of the C library's allocator.

Each turn of a token policy frees the last prompt and makes one a little longer. glibc hands a freed block above a threshold (128 KiB,
16,000 tokens) back to the system and takes fresh pages for the next: 1 ms a turn at 200,000 tokens, more than all else the harness
does. The threshold rises to the largest block that was freed so (mallopt(3), M_MMAP_THRESHOLD), hence this. Where there is no
glibc it changes nothing.
"""

from __future__ import annotations

from functools import cache

# A prompt of two million tokens; glibc's own limit is twice that.
_LARGEST_BYTES = 16 << 20


@cache
def keep_large_blocks() -> None:
    """Once a process; touches none of the memory that it asks for."""
    bytearray(_LARGEST_BYTES)
