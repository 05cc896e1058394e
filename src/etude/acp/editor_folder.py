"""A folder of this machine as its editor sees it: files with unsaved changes are read as they stand in the editor, and what is
written goes through it, so that open buffers follow. Searches and commands see the disk.

An editor keeps text without its mark and line ends: where it holds what the disk holds, the disk's bytes count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from acp import RequestError
from acp.interfaces import Client
from acp.schema import FileSystemCapabilities

from etude.harness.local_folder import LocalFolder


class EditorFolder(LocalFolder):
    """One session's. `offered`: what of its files the editor lets us have."""

    def __init__(
        self, root: Path, client: Client, session_id: str, offered: FileSystemCapabilities, allowed: Sequence[str] = ()
    ) -> None:
        super().__init__(root, allowed=allowed)
        self._client = client
        self._session_id = session_id
        self._offered = offered

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        disk = await super().read(path, max_bytes=max_bytes, offset=offset)
        if not self._offered.read_text_file or not self._shared(path):
            return disk
        whole = disk if offset == 0 and len(disk) < max_bytes else None
        text = None if whole is None else _text(whole)
        if text is None:  # binary, or too large for an editor
            return disk
        try:
            held = (await self._client.read_text_file(session_id=self._session_id, path=self._resolve(path))).content
        except RequestError:  # it doesn't have the file open and won't read it for us: the disk is all there is
            return disk
        return disk if _plain(held) == _plain(text) else held.encode()[:max_bytes]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """The disk holds the bytes in any case; the editor is told first, so that it does not take them for another's change."""
        text = _text(data)
        if self._offered.write_text_file and text is not None and self._shared(path):
            place = self._resolve(path)
            Path(place).parent.mkdir(parents=True, exist_ok=True)  # not every editor makes folders
            try:
                await self._client.write_text_file(session_id=self._session_id, path=place, content=text)
            except RequestError as error:
                raise OSError(f"the editor refused to write {path}: {error}") from error
        await super().write(path, data, mode=mode)

    def _shared(self, path: str) -> bool:
        """In the workspace; what a session keeps beside it is not the editor's."""
        return Path(self._resolve(path)).is_relative_to(self.spec.workdir)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
