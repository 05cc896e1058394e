"""Processes that work for a folder of ours: an engine's helpers, which no list of children knows, because each left its parent on purpose.

Known by what we gave them: the folder as their home, their runtime directory or their `--root`. A shell that merely stands in the folder
or a command that names it is none.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from etude.sandbox.cleanup.being import Being
from etude.sandbox.cleanup.stuck import Stuck

_VARIABLES = (b"HOME=", b"XDG_RUNTIME_DIR=")
_PAUSE_S = 0.02


def of(folder: str) -> list[Being]:
    place = os.fsencode(folder)
    everybody = (Being.of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [being for being in everybody if being is not None and _works_for(being, place)]


def end(folder: str, grace_s: float, patience_s: float) -> None:
    """Wait for those that end by themselves and clean up as they do, then kill the rest. Raises Stuck."""
    end_s = time.monotonic() + grace_s
    while (left := of(folder)) and time.monotonic() < end_s:
        time.sleep(_PAUSE_S)
    for being in left:
        try:
            if not being.kill(patience_s):
                raise Stuck(
                    f"process {being.pid}, which works for {folder}, does not die within {patience_s} s of SIGKILL"
                )
        except PermissionError:
            raise Stuck(
                f"process {being.pid}, which works for {folder}, is another user's; reap as that user, or as root"
            ) from None


def _works_for(being: Being, folder: bytes) -> bool:
    try:
        words = Path(f"/proc/{being.pid}/cmdline").read_bytes().split(b"\0")
        variables = Path(f"/proc/{being.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # gone, or another user's
    if any(
        _in(value.removeprefix(name), folder) for name in _VARIABLES for value in variables if value.startswith(name)
    ):
        return True
    roots = [word.removeprefix(b"--root=") for word in words if word.startswith(b"--root=")]
    roots += [after for word, after in zip(words, words[1:], strict=False) if word == b"--root"]
    return any(_in(root, folder) for root in roots)


def _in(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder + b"/")
