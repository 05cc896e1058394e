"""Programs that tools run on the workspace's machine, with nothing but the standard library: the same in a sandbox and outside.

They are sent as text (`python -I -c`), so that the machine needs nothing but a Python.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def source(name: str) -> str:
    """The text of one of them."""
    return (_FOLDER / f"{name}.py").read_text(encoding="utf-8")


def command(name: str, *arguments: str) -> list[str]:
    """How to run one of them. -I: neither the workspace nor its environment may shadow a module."""
    return ["python", "-I", "-c", source(name), *arguments]
