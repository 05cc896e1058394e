"""Back end `local`: Linux namespaces made by a zygote, as root or as an ordinary user. `LocalPool` makes, `LocalSandbox` is.

Promises: a sandbox is handed out whole or not at all; everything that goes wrong is a typed error; closing the pool, or the death of
this process, ends every sandbox it made.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import posixpath
import signal
import socket
from collections.abc import Callable
from typing import Any

from etude.sandbox import interpreter
from etude.sandbox.channel import Channel
from etude.sandbox.inside import frames
from etude.sandbox.nursery import Nursery, RootKey
from etude.sandbox.protocol import (
    Capabilities,
    Entry,
    ExecResult,
    InfraError,
    SandboxNotFound,
    SandboxSpec,
    Unsupported,
    UserError,
)
from etude.sandbox.settings import SandboxSettings

_CREATE_PATIENCE_S = 30.0
_FILE_PATIENCE_S = 30.0
_RUN_GRACE_S = 10.0  # the runner kills at timeout_s; this long after it we stop believing in the runner
_SYSTEM_TREES = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/proc",
    "/dev",
    "/sys",
    "/tmp",
    "/opt/etude",
)


class LocalSandbox:
    """One live sandbox."""

    def __init__(self, name: str, spec: SandboxSpec, channel: Channel, running: asyncio.Semaphore) -> None:
        self.id, self.spec = name, spec
        self._channel, self._running = channel, running
        self._gone: asyncio.Future[None] | None = None
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
        return _result(frame)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        head = {"path": path, "max_bytes": max_bytes, "offset": offset}
        return (await self._call(frames.READ, head, limit_bytes=max_bytes)).blob

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
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
            if not gone.done():
                gone.set_result(None)

        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            finished()
            return
        loop.add_reader(pidfd, finished)


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


class LocalPool:
    """Makes sandboxes; open it with `LocalPool.open`, which proves that it works by making one."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._running = asyncio.Semaphore(settings.max_running)
        self._nurseries: dict[RootKey, asyncio.Task[Nursery]] = {}
        self._live: dict[str, LocalSandbox] = {}
        self._numbers = itertools.count(1)
        self._closed = False
        self._capabilities = Capabilities("local", "namespace", available=False, reason="not probed yet")

    @classmethod
    async def open(cls, settings: SandboxSettings) -> LocalPool:
        """Raises Unsupported, with the step that failed and the remedy, where no sandbox can be made."""
        pool = cls(settings)
        try:
            sandbox = await pool.create(SandboxSpec(files={"probe": b"1"}))
            cold = await sandbox.run(["/bin/sh", "-c", "cat probe"])
            warm = await sandbox.run(["python", "-c", "print(open('probe').read())"], warm=True)
            await sandbox.kill()
        except InfraError:
            await pool.close()
            raise
        if (cold.out, warm.out) != (b"1", b"1\n"):
            await pool.close()
            raise Unsupported(f"back end local: the probe command failed: {cold} {warm}")
        python = interpreter.find()
        version = ".".join(map(str, python.version))
        pool._capabilities = Capabilities(
            "local", "namespace", True, f"python {version} at {python.path}", limits="rlimits+watch"
        )
        return pool

    def probe(self) -> Capabilities:
        return self._capabilities

    async def create(self, spec: SandboxSpec) -> LocalSandbox:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        _require(spec)
        nursery = await self._nursery(RootKey(spec.workdir, spec.read_only_binds))
        name = f"sb-{next(self._numbers)}"
        ours, theirs = socket.socketpair()
        channel = Channel(ours, name)
        sandbox = LocalSandbox(name, spec, channel, self._running)
        try:
            with theirs:
                await nursery.conceive(theirs)
            channel.send(_spec_frame(spec))
            async with asyncio.timeout(_CREATE_PATIENCE_S):
                await channel.ready
        except TimeoutError:
            await sandbox.kill()
            raise InfraError(f"{name} was not ready within {_CREATE_PATIENCE_S} s; the machine is overloaded") from None
        except BaseException:
            await sandbox.kill()
            raise
        self._live[name] = sandbox
        sandbox.on_end = lambda: self._live.pop(name, None)
        return sandbox

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(sandbox.kill() for sandbox in list(self._live.values())))
        for task in self._nurseries.values():
            try:
                await (await task).close()
            except Unsupported:
                continue  # it never started
        self._nurseries.clear()

    async def _nursery(self, key: RootKey) -> Nursery:
        """One zygote per root, started once even if many ask at once, started anew if it died."""
        task = self._nurseries.get(key)
        if task is None or (task.done() and (task.exception() is not None or not task.result().alive)):
            task = self._nurseries[key] = asyncio.ensure_future(Nursery.start(key, interpreter.find()))
        return await asyncio.shield(task)


def _require(spec: SandboxSpec) -> None:
    """Refuse at the door what can't be given."""
    if spec.isolation_min in ("gvisor", "vm"):
        raise Unsupported(f"isolation_min={spec.isolation_min!r}: back end local gives 'namespace'; lower the demand")
    if spec.network != "none":
        raise Unsupported(f"network={spec.network!r}: only 'none' is built")
    for path in (spec.workdir, *(inside for _, inside in spec.read_only_binds)):
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
            raise Unsupported(f"{path!r}: a folder inside must be an absolute, plain path below /")
    if any(spec.workdir == tree or spec.workdir.startswith(tree + "/") for tree in _SYSTEM_TREES):
        raise Unsupported(f"workdir={spec.workdir!r} is a system folder; take one such as /work or /testbed")
    for host, _ in spec.read_only_binds:
        if not os.path.exists(host):
            raise UserError(f"read_only_binds: {host} does not exist")
        needed = 0o005 if os.path.isdir(host) else 0o004
        if os.geteuid() == 0 and os.stat(host).st_mode & needed != needed:
            raise UserError(
                f"read_only_binds: {host} is closed to others, and a sandbox made by root is one; chmod o+rX it"
            )


def _spec_frame(spec: SandboxSpec) -> bytes:
    head = {
        "workdir": spec.workdir,
        "env": spec.env,
        "memory_mb": spec.memory_mb,
        "pids": spec.pids,
        "disk_mb": spec.disk_mb,
        "files": [[path, len(data)] for path, data in spec.files.items()],
    }
    try:
        return frames.pack(frames.SPEC, 0, head, b"".join(spec.files.values()))
    except frames.FrameError as error:
        raise UserError(f"the spec's files are too large: {error}") from None
