"""tcmalloc as the memory allocator of processes that compute, where it is installed (Debian's package libtcmalloc-minimal4).

A step of a large model allocates and frees tensors of many megabytes. glibc either gives them back to the kernel, which clears every page again
when it is needed next, or keeps them in pieces that the next tensors don't fit into. An SFT step of SmolLM2-135M (eight sessions, recomputing; one
core of an Intel Xeon in a virtual machine) takes 69 core-seconds and 2.8 GB the first way, 53 and 4.4 GB the second, 53 and 3.0 GB with tcmalloc.

The library has to be there when a process starts, so what starts it sets LD_PRELOAD; the process forgets the variable, for its own children have
other things to do. A person's own LD_PRELOAD is left as it is.
"""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

VARIABLE, OURS = "LD_PRELOAD", "ETUDE_PRELOADED"  # the second says that the first is not the person's own
NAMES = ("tcmalloc_minimal", "tcmalloc")
PACKAGE = "libtcmalloc-minimal4"


@cache
def library() -> str | None:
    """The name by which the dynamic linker finds tcmalloc; None where it is not installed."""
    return next((found for name in NAMES if (found := ctypes.util.find_library(name))), None)


def variables() -> dict[str, str]:
    """What the environment of a process that computes has in addition."""
    found = library()
    return {VARIABLE: found, OURS: "1"} if found and VARIABLE not in os.environ else {}


@contextmanager
def preloaded() -> Iterator[None]:
    """Processes that are started within have tcmalloc, if it is installed. Not for two threads at a time."""
    added = variables()
    os.environ |= added
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def forget_preload() -> None:
    """In a process that was started in `preloaded`, before it starts others."""
    if os.environ.pop(OURS, ""):
        os.environ.pop(VARIABLE, None)


def in_use() -> bool:
    """Whether this process has tcmalloc."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return any("tcmalloc" in line for line in maps)
