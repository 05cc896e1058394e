"""Whether a Python has vLLM, asked without loading it. Imports nothing heavy."""

from __future__ import annotations

import subprocess

# What an environment variable may name: for the tests that need vLLM, and for `etude doctor`.
VARIABLE = "ETUDE_VLLM_PYTHON"
# The CPU build is a distribution of another name.
ASK = """
import importlib.metadata as metadata
names = metadata.packages_distributions().get("vllm", [])
print(metadata.version(names[0]) if names else "")
"""
PATIENCE_S = 60.0  # a Python that looks through its packages for the first time, on a busy machine


class NoVllm(ValueError):
    """The Python named has no vLLM, or is none."""


def vllm_version(python: str) -> str:
    """Raises NoVllm, which says what to do."""
    try:
        asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoVllm(f"{python} can't be run ({error}): name the Python of an environment that has vLLM") from None
    if asked.returncode or not asked.stdout.strip():
        last_line = (asked.stderr.strip().splitlines() or ["it has no package vllm"])[-1]
        raise NoVllm(
            f"{python} has no vLLM ({last_line}): install it there, as docs/vllm.md says, or name another Python"
        )
    return asked.stdout.strip()
