"""The C runner as an open file, for the processes that become it."""

from __future__ import annotations

import asyncio
import os

from etude.sandbox.errors import Unsupported
from etude.sandbox.native import build


class NativeProgram:
    """Built on first need, off the event loop, and opened once."""

    def __init__(self) -> None:
        self._opened: asyncio.Task[int] | None = None

    async def descriptor(self) -> int:
        """To execute, ours to close. Raises Unsupported with the remedy where there is none."""
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
    if isinstance(found, str):
        raise Unsupported(f"there is no command runner for sandboxes: {found}; {build.remedy()}")
    return os.open(found, os.O_RDONLY | os.O_CLOEXEC)


def _close_program(opened: asyncio.Task[int]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        os.close(opened.result())
