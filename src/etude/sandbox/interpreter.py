"""Which Python is the one inside: found by starting it, in the order of how little of the host it brings along."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from etude.sandbox.errors import Unsupported

SYSTEM_PYTHON = "/usr/bin/python3"
_OLDEST = (3, 11)  # the project's own floor: the runner and the exercises are written for it
_PROBE = "import ctypes, json, socket, sys; print(json.dumps([sys.version_info[:3], sys.base_prefix]))"
_PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Interpreter:
    """`path` is valid inside too; `prefix` must be bound unless it is a system directory."""

    path: str
    prefix: str
    version: tuple[int, ...]

    @property
    def binds(self) -> tuple[tuple[str, str], ...]:
        return () if self.prefix == "/usr" else ((self.prefix, self.prefix),)


@functools.cache
def find() -> Interpreter:
    """The system's Python if it is new enough, else the one this process was made from (never a virtual environment's)."""
    tried: list[str] = []
    own = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    for path in (SYSTEM_PYTHON, own):
        try:
            done = subprocess.run(
                [path, "-P", "-S", "-s", "-c", _PROBE],
                capture_output=True,
                timeout=_PROBE_TIMEOUT_S,
                env={},
                check=True,
            )
            version, prefix = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError, RecursionError) as error:
            tried.append(f"{path}: {error}")
            continue
        if tuple(version) < _OLDEST:
            tried.append(f"{path}: is {'.'.join(map(str, version))}")
            continue
        return Interpreter(os.path.realpath(path), prefix, tuple(version))
    raise Unsupported(
        f"no Python >= 3.11 for the inside of sandboxes ({'; '.join(tried)}); install python3.11 or newer"
    )
