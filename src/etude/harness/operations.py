"""What a machine must do for tools: a `Sandbox` of the sandbox room does it, and so does a `LocalFolder`, the person's own."""

from __future__ import annotations

from typing import Protocol

from etude.sandbox.protocol import Entry, ExecResult, SandboxSpec, UserError

# What a session keeps beside the files: whole outputs of commands. Agents and shells both name it $OUTPUTS.
OUTPUTS = "$OUTPUTS"
OUTPUTS_FOLDER = "/tmp/etude-outputs"


class Outside(UserError):
    """A path that leads out of a folder that may not be left."""


class Operations(Protocol):
    """What a machine must do; the meaning of each is in `etude.sandbox.protocol.Sandbox`, which satisfies it.

    Relative paths start at `spec.workdir`. `/tmp/etude-outputs` exists on every machine, wherever it really lies.
    """

    spec: SandboxSpec

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
    ) -> ExecResult: ...

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes: ...
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Whole or not at all. Without a mode that of the file that is there stays, else it is 0o644."""
        ...

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[Entry]: ...
    async def remove(self, path: str) -> None: ...
    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]: ...
