"""The client's view of one live sandbox, whichever back end made it: commands, files, death.

Promise: `kill` returns when everything inside is gone, and everything outside that was made for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Callable
from typing import Any, Protocol

from etude.sandbox.errors import SandboxError, SandboxNotFound, UserError
from etude.sandbox.inside import frames
from etude.sandbox.limits.groups import Group
from etude.sandbox.refusals import Refusals
from etude.sandbox.spec import Entry, ExecResult, SandboxSpec
from etude.sandbox.wire.channel import Channel

_FILE_PATIENCE_S = 30.0
_RUN_GRACE_S = 10.0  # the runner kills at timeout_s; this long after it we stop believing in the runner


class Birth(Protocol):
    """What started a sandbox and stays beside it."""

    def explain(self, error: SandboxError) -> SandboxError:
        """The error to raise when the sandbox never came up, with what the launcher said."""
        ...

    async def end(self) -> None:
        """Return when it is gone; it ends by itself when the sandbox does, else it is killed. Idempotent."""
        ...


class LiveSandbox(Refusals):
    """One live sandbox. Its maker sets `birth` and `group` before it is handed out, where the back end has them."""

    def __init__(self, name: str, spec: SandboxSpec, channel: Channel, running: asyncio.Semaphore) -> None:
        self.id, self.spec = name, spec
        self._channel, self._running = channel, running
        self._gone: asyncio.Future[None] | None = None
        self._burial: asyncio.Task[None] | None = None  # held, or it might be collected before it ends
        self.birth: Birth | None = None
        self.group: Group | None = None
        self.end_signal = signal.SIGKILL
        self.on_end: Callable[[], Any] = lambda: None
        channel.on_death = self._destroy

    async def run(
        self,
        argv: list[str] | str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float = 10.0,
        stdin: bytes = b"",
        max_output_bytes: int = 65536,
        warm: bool = False,
    ) -> ExecResult:
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
        if not words or timeout_s <= 0 or max_output_bytes < 0:
            raise UserError(
                f"run needs a command, a time and an output limit, got {argv!r}, {timeout_s} s, {max_output_bytes} bytes"
            )
        if any("\0" in word for word in words):
            raise UserError(f"a command can't hold a zero byte: {words!r}")
        try:
            os.fsencode("".join(words))
        except UnicodeEncodeError:
            raise UserError(f"a command can't hold half a surrogate pair: {words!r}") from None
        head = {
            "argv": words,
            "cwd": cwd,
            "env": env or {},
            "timeout_s": timeout_s,
            "max_output_bytes": max_output_bytes,
            "warm": warm,
        }
        async with self._running:
            frame = await self._call(
                frames.RUN, head, stdin, limit_bytes=2 * max_output_bytes, patience_s=timeout_s + _RUN_GRACE_S
            )
        result = _result(frame)
        if self.group is not None and self.group.ran_out_of_memory():
            result = dataclasses.replace(result, oom=True)
        return result

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        head = {"path": path, "max_bytes": max_bytes, "offset": offset}
        return (await self._call(frames.READ, head, limit_bytes=max_bytes)).blob

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self._call(frames.WRITE, {"path": path, "mode": mode}, data)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[Entry]:
        head = {"path": path, "recursive": recursive, "max_entries": max_entries}
        frame = await self._call(frames.LIST, head, limit_bytes=frames.MAX_FRAME_BYTES)
        return [Entry(*entry) for entry in frame.head["entries"]]

    async def remove(self, path: str) -> None:
        await self._call(frames.REMOVE, {"path": path})

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        frame = await self._call(
            frames.EXPORT, {"path": path, "max_bytes": max_bytes}, limit_bytes=frames.MAX_FRAME_BYTES
        )
        found: dict[str, bytes] = {}
        offset = 0
        for name, size in frame.head["files"]:
            found[name] = frame.blob[offset : offset + size]
            offset += size
        return found

    async def kill(self) -> None:
        self._channel.fail(SandboxNotFound(f"{self.id} was killed"))
        if self._gone is not None:
            await asyncio.shield(self._gone)
        elif self.birth is not None:
            await self.birth.end()

    async def _call(
        self,
        kind: int,
        head: dict[str, Any],
        blob: bytes = b"",
        *,
        limit_bytes: int = 0,
        patience_s: float = _FILE_PATIENCE_S,
    ) -> frames.Frame:
        return await self._channel.call(kind, head, blob, limit_bytes=limit_bytes, patience_s=patience_s)

    def _destroy(self) -> None:
        """Kill PID 1 (the kernel kills the rest before its pidfd becomes readable) and note when all is gone."""
        self.on_end()
        pidfd = self._channel.pidfd
        if pidfd < 0:
            return
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        self._gone = gone

        def finished() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            if self.birth is not None or self.group is not None:
                self._burial = loop.create_task(self._bury(gone))
            elif not gone.done():
                gone.set_result(None)

        try:
            signal.pidfd_send_signal(pidfd, self.end_signal)
        except ProcessLookupError:
            finished()
            return
        loop.add_reader(pidfd, finished)

    async def _bury(self, gone: asyncio.Future[None]) -> None:
        """What is left outside of a dead sandbox: its launcher, its control group."""
        try:
            if self.birth is not None:
                await self.birth.end()
            if self.group is not None:
                self.group.remove()
        finally:
            if not gone.done():
                gone.set_result(None)


def _result(frame: frames.Frame) -> ExecResult:
    head, cut = frame.head, int(frame.head["out"])
    return ExecResult(
        rc=int(head["rc"]),
        out=frame.blob[:cut],
        err=frame.blob[cut:],
        truncated=bool(head["truncated"]),
        timed_out=bool(head["timed_out"]),
        oom=bool(head["oom"]),
        signal=head["signal"],
        duration_s=float(head["duration_s"]),
    )
