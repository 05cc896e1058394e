"""What a small model's step frees is there for its next step without the kernel's help; what a large one's frees goes back."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
from torch import nn
from etude.learn.model.heap import LARGE_PARAMETERS, fit_heap, keep_freed_memory, return_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
width = {"small": 1, "large": LARGE_PARAMETERS}.get(sys.argv[1])
ways = {"as it is": lambda: True, "kept": keep_freed_memory, "returned": return_freed_memory}
assert fit_heap(nn.Linear(width, 1, device="meta")) if width else ways[sys.argv[1]]()
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(8 << 20) for _ in range(16)]
    for block in blocks:
        ctypes.memset(block, 1, 8 << 20)
    for block in reversed(blocks):
        libc.free(block)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


def faults_of_a_later_round(mode: str) -> int:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.nightly
def test_a_later_step_finds_its_memory_mapped():
    assert faults_of_a_later_round("as it is") > 1000 > 100 > faults_of_a_later_round("kept")
    assert faults_of_a_later_round("small") < 100


def test_a_large_models_step_gives_its_memory_back():
    assert faults_of_a_later_round("returned") > 1000
    assert faults_of_a_later_round("large") > 1000
