"""What the trainer frees is there for its next step without the kernel's help."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes, resource, sys
from etude.rl.memory import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
assert sys.argv[1] == "as it is" or keep_freed_memory()
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
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_later_step_finds_its_memory_mapped():
    assert faults_of_a_later_round("as it is") > 1000 > 100 > faults_of_a_later_round("kept")
