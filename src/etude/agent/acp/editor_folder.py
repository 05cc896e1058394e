"""A folder as its editor sees it: files with unsaved changes are read as they stand in the editor, and what is written goes through
it, so that open buffers follow. Searches and commands see the disk. Behind it is the folder itself, or a sandbox around it.

An editor keeps text without its mark and line ends: where it holds what the disk holds, the disk's bytes count. It writes with the
person's rights, so it is given only files of the workspace, by their real paths, and nothing of the repository's own data, which a
sandbox keeps read-only.
"""

from __future__ import annotations

import os
from pathlib import Path

from acp import RequestError
from acp.interfaces import Client
from acp.schema import FileSystemCapabilities

from etude.agent.workspace.operations import OUTPUTS_FOLDER
from etude.sandbox.protocol import Operations
from etude.sandbox.spec import ExecResult, FileEntry


class EditorFolder:
    """One session's `Operations` over `inner`. `offered`: what of its files the editor lets us have."""

    def __init__(self, inner: Operations, client: Client, session_id: str, offered: FileSystemCapabilities) -> None:
        self.spec = inner.spec
        self._inner = inner
        self._client = client
        self._session_id = session_id
        self._offered = offered

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
        return await self._inner.run(
            argv, cwd=cwd, env=env, timeout_s=timeout_s, stdin=stdin, max_output_bytes=max_output_bytes, warm=warm
        )

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        return await self._inner.list(path, recursive=recursive, max_entries=max_entries)

    async def remove(self, path: str) -> None:
        await self._inner.remove(path)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return await self._inner.export(path, max_bytes=max_bytes)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        disk = await self._inner.read(path, max_bytes=max_bytes, offset=offset)
        place = self._shared(path) if self._offered.read_text_file else None
        whole = disk if offset == 0 and len(disk) < max_bytes else None
        text = None if whole is None else _text(whole)
        if place is None or text is None:  # not the editor's; binary, or too large for an editor
            return disk
        try:
            held = (await self._client.read_text_file(session_id=self._session_id, path=place)).content
        except RequestError:  # it doesn't have the file open and won't read it for us: the disk is all there is
            return disk
        return disk if _plain(held) == _plain(text) else held.encode()[:max_bytes]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """The disk holds the bytes in any case; the editor is informed first, so that it does not take them for another's change."""
        text = _text(data)
        place = self._shared(path) if self._offered.write_text_file and text is not None else None
        if place is not None:
            Path(place).parent.mkdir(parents=True, exist_ok=True)  # not every editor makes folders
            try:
                await self._client.write_text_file(session_id=self._session_id, path=place, content=text or "")
            except RequestError as error:
                raise OSError(f"the editor refused to write {path}: {error}") from error
        await self._inner.write(path, data, mode=mode)

    def _shared(self, path: str) -> str | None:
        """The real path of a file of the workspace; None for what is not the editor's: a session's own outputs, files elsewhere, links
        that lead there, the repository's data."""
        if path == OUTPUTS_FOLDER or path.startswith(OUTPUTS_FOLDER + "/"):
            return None
        real = Path(os.path.realpath(os.path.join(self.spec.workdir, path)))
        if not real.is_relative_to(self.spec.workdir) or real == Path(self.spec.workdir):
            return None
        return None if real.relative_to(self.spec.workdir).parts[0] == ".git" else str(real)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
