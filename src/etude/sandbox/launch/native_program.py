"""The C runner as an open file, for the processes that become it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from etude.sandbox.native import build


class NativeProgram:
    """Built on first need, off the event loop, and opened once. Where it can't be built there is none, and the Python runner serves."""

    def __init__(self) -> None:
        self._opened: asyncio.Task[int] | None = None

    async def descriptor(self) -> int:
        """To execute, ours to close; -1 where there is none."""
        if self._opened is None:
            self._opened = asyncio.ensure_future(asyncio.to_thread(_open_program))
        return await asyncio.shield(self._opened)

    def close(self) -> None:
        """Also what is still being built: it is closed as it comes."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.done():
            _close_program(opened)
        elif opened is not None:
            opened.add_done_callback(_close_program)


def _open_program() -> int:
    found = build.program()
    return os.open(found, os.O_RDONLY | os.O_CLOEXEC) if isinstance(found, Path) else -1


def _close_program(opened: asyncio.Task[int]) -> None:
    if not opened.cancelled() and opened.exception() is None and opened.result() >= 0:
        os.close(opened.result())
