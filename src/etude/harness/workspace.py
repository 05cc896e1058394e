"""The operations tools need, over a sandbox: text files and commands. The one seam between tools and machines.

The inside's doing (a missing file, a path that escapes, a full disk) becomes `WorkspaceError`, which the model is told;
infra errors pass through untouched, because they are ours and must never look like a result (promise 8). The words are
our own, never the back end's: what a tool says is part of what the policy observes and must not change with the machine.
"""

from __future__ import annotations

from typing import Sequence

from etude.sandbox.protocol import DiskFull, ExecResult, Sandbox, UserError

# A file the agent reads whole. Source files are far smaller; beyond it a tool answer would be cut anyway.
MAX_FILE_BYTES = 1 << 20
# A tree that is searched on the host: copied out once per call, so it must stay small. Larger trees search inside.
MAX_TREE_BYTES = 1 << 20


class WorkspaceError(Exception):
    """What the sandbox refused, in words for the model."""


class Workspace:
    """One sandbox seen as a folder of text files."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def read(self, path: str) -> str:
        try:
            data = await self._sandbox.read(path, max_bytes=MAX_FILE_BYTES + 1)
        except (UserError, OSError) as error:
            raise WorkspaceError(f"no file {path}") from error
        if len(data) > MAX_FILE_BYTES:
            raise WorkspaceError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WorkspaceError(f"{path} is not text") from error

    async def exists(self, path: str) -> bool:
        try:
            await self._sandbox.read(path, max_bytes=1)
        except (UserError, OSError):
            return False
        return True

    async def write(self, path: str, text: str) -> None:
        try:
            await self._sandbox.write(path, text.encode("utf-8"))
        except (UserError, OSError) as error:
            raise WorkspaceError("disk full" if isinstance(error, DiskFull) else f"cannot write {path}") from error

    async def texts(self) -> dict[str, str]:
        """Every text file by path, sorted; hidden folders, caches and binary files left out."""
        try:
            files = await self._sandbox.export(".", max_bytes=MAX_TREE_BYTES)
        except UserError as error:
            raise WorkspaceError("the folder is too large to search") from error
        texts: dict[str, str] = {}
        for path in sorted(files):
            if not any(part.startswith(".") or part == "__pycache__" for part in path.split("/")):
                try:
                    path.encode("utf-8")  # a name that no policy can say is left out as well
                    texts[path] = files[path].decode("utf-8")
                except UnicodeError:
                    continue
        return texts

    async def run(self, argv: Sequence[str] | str, *, timeout_s: float, max_output_bytes: int) -> ExecResult:
        """Python runs warm: the sandbox's own interpreter forks instead of starting."""
        warm = not isinstance(argv, str) and bool(argv) and argv[0] == "python"
        command = argv if isinstance(argv, str) else list(argv)
        try:
            return await self._sandbox.run(command, timeout_s=timeout_s, max_output_bytes=max_output_bytes, warm=warm)
        except UserError as error:
            raise WorkspaceError(f"cannot run: {type(error).__name__}") from error
