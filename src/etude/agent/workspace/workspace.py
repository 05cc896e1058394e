"""The operations tools need, over a machine: files and commands. The one seam between tools and machines.

`Operations` are the calls that a machine must implement; `Workspace` is the same over all of them, and so are the tools' answers.

What the inside refuses (a missing file, a path that escapes, a full disk) becomes `WorkspaceError`, which the model receives;
infra errors pass through untouched, because they are ours and must never look like a result (promise 8). The words are
our own, never the back end's: what a tool says is part of what the policy observes and must not change with the machine.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable
from typing import Literal, Sequence

from etude.agent.workspace.operations import OUTPUTS, OUTPUTS_FOLDER, PathOutside
from etude.agent.workspace.path_rules import WorkspaceError, require_length, require_path
from etude.agent.workspace.text_file import NotText, TextFile
from etude.core.spelling import similar
from etude.core.trace.unicode import is_whole
from etude.sandbox.errors import DiskFull, OutputLimit, UserError
from etude.sandbox.protocol import Operations
from etude.sandbox.spec import ExecResult, FileEntry

# A file that `read` takes whole. Source files are far smaller; beyond it a tool answer would be cut anyway.
MAX_FILE_BYTES = 1 << 20
# A file that tools load to show a part of it, to edit it, or to keep it for an undo: half of what a sandbox' wire takes at once.
MAX_LOAD_BYTES = 32 << 20
# Splitting a larger file into lines takes long enough to be done off the event loop.
_INLINE_BYTES = 1 << 20
# A tree that is searched on the host: copied out once per call, so it must stay small. Larger trees search inside.
MAX_TREE_BYTES = 1 << 20
# Linux takes no longer word of a command line (MAX_ARG_STRLEN is 128 KiB); some room is left.
LONGEST_ARGUMENT_BYTES = 120_000
# More than this no listing can show; a larger tree is reported as one.
MAX_ENTRIES = 10_000


class FileTooLarge(WorkspaceError):
    """A file of more than MAX_LOAD_BYTES."""


# What was removed. A link and a large file can't be restored: the journal does not hold them.
Removed = Literal["file", "link", "large file"]

# Called with every file that a tool changes: (path, bytes before, bytes after), None where there was or is no file. What a shell
# command changes is not seen.
Journal = Callable[[str, bytes | None, bytes | None], None]


class Workspace:
    """One machine seen as a folder of text files."""

    def __init__(self, operations: Operations, journal: Journal | None = None) -> None:
        self._operations = operations
        self._journal = journal
        # Files that tools changed, as they were before the first change; None where there was none.
        self.originals: dict[str, bytes | None] = {}

    async def read(self, path: str) -> str:
        require_path(path)
        try:
            data = await self._operations.read(path, max_bytes=MAX_FILE_BYTES + 1)
        except (UserError, OSError) as error:
            raise WorkspaceError(f"no file {path}") from error
        if len(data) > MAX_FILE_BYTES:
            raise WorkspaceError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WorkspaceError(f"{path} is not text") from error

    async def exists(self, path: str) -> bool:
        return await self.head(path, 1) is not None

    async def head(self, path: str, max_bytes: int) -> bytes | None:
        """The first bytes of a file, None where there is none that can be read."""
        try:
            return await self._operations.read(path, max_bytes=max_bytes)
        except (UserError, OSError):
            return None

    @property
    def root(self) -> str:
        """The workspace's own path on its machine."""
        return self._operations.spec.workdir

    async def write(self, path: str, text: str) -> None:
        """Whole or not at all."""
        require_path(path)
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:
            raise WorkspaceError(f"cannot write {path}: the text holds half a surrogate pair") from None
        await self._store(path, data)

    async def load(self, path: str) -> TextFile:
        """A text file with its mark and line ends; links inside of the workspace are followed."""
        data = await self.bytes_of(path)
        if data is None:
            raise WorkspaceError(f"no file {path}{await self._similar(path)}")
        try:
            return (
                await asyncio.to_thread(TextFile.decode, data) if len(data) > _INLINE_BYTES else TextFile.decode(data)
            )
        except NotText as error:
            raise WorkspaceError(f"{path} {error}; this tool takes UTF-8 text only") from None

    async def save(self, path: str, file: TextFile) -> None:
        await self._replace(path, file.encode())

    async def bytes_of(self, path: str) -> bytes | None:
        """A file's content, or None where there is none. Raises WorkspaceError if it is outside, a folder or closed, TooLarge."""
        place = self.place(path)
        try:
            data = await self._operations.read(place, max_bytes=MAX_LOAD_BYTES + 1)
        except PathOutside:
            raise WorkspaceError(f"{path} lies outside of the workspace") from None
        except (UserError, OSError):
            target = await self._link(place)
            if target is not None:
                return await self.bytes_of(target)
            if await self.is_folder(path):
                raise WorkspaceError(f"{path} is a folder, not a file") from None
            if await self._there(place):
                raise WorkspaceError(f"{path} is there and can't be read; its mode forbids it (chmod u+r)") from None
            return None
        if len(data) > MAX_LOAD_BYTES:
            remedy = "search it, or take a part with the shell: sed -n '1,200p'"
            raise FileTooLarge(f"{path} is larger than {MAX_LOAD_BYTES >> 20} MiB; {remedy}")
        return data

    async def restore(self, path: str, data: bytes | None) -> None:
        """Put a file back as it was, or away."""
        if data is None:
            await self.remove(path)
        else:
            await self._replace(path, data)

    async def remove(self, path: str) -> Removed:
        """Delete one file, or a link itself, wherever it leads."""
        place = self._inside(path)
        is_link = await self._kind(place) == "link"
        before = None if is_link else await self.content_before(path)
        if before is None and not is_link:
            raise WorkspaceError(f"no file {path}{await self._similar(path)}")
        try:
            await self._operations.remove(place)
        except PathOutside:
            raise WorkspaceError(f"{path} lies outside of the workspace") from None
        except (UserError, OSError) as error:
            raise WorkspaceError(f"cannot delete {path}") from error
        if isinstance(before, bytes):
            self._tell(place, before, None)
        return "link" if is_link else "file" if isinstance(before, bytes) else "large file"

    async def entries(self, path: str = ".", *, recursive: bool = False) -> list[FileEntry]:
        """What a folder holds, depth first, names in byte order."""
        try:
            return await self._list(self.place(path), recursive=recursive)
        except PathOutside:
            raise WorkspaceError(f"{path} lies outside of the workspace") from None
        except OutputLimit:
            raise WorkspaceError(f"{path} holds more than {MAX_ENTRIES} entries; name a folder below it") from None
        except (UserError, OSError) as error:
            raise WorkspaceError(f"no folder {path}") from error

    async def is_folder(self, path: str) -> bool:
        try:
            await self._list(self.place(path), recursive=False)
        except OutputLimit:
            return True
        except (UserError, OSError):
            return False
        return True

    async def _list(self, place: str, *, recursive: bool) -> list[FileEntry]:
        try:
            return await self._operations.list(place, recursive=recursive, max_entries=MAX_ENTRIES)
        except (PathOutside, OutputLimit):
            raise
        except (UserError, OSError):
            target = await self._link(place)
            if target is None:
                raise
            return await self._operations.list(target, recursive=recursive, max_entries=MAX_ENTRIES)

    def place(self, path: str) -> str:
        """As the machine names it. Raises WorkspaceError for a relative path that climbs out, and for one that is written for another
        machine or a shell (`require_path`)."""
        require_length(path)
        if path == OUTPUTS or path.startswith(OUTPUTS + "/"):
            rest = posixpath.normpath("/" + path[len(OUTPUTS) :].lstrip("/"))
            return OUTPUTS_FOLDER if rest == "/" else OUTPUTS_FOLDER + rest
        require_path(path)
        normal = posixpath.normpath(path)
        root = self._operations.spec.workdir.rstrip("/")
        if normal == root or normal.startswith(root + "/"):
            return normal[len(root) + 1 :] or "."
        if normal == ".." or normal.startswith("../"):
            raise WorkspaceError(f"{path} lies outside of the workspace")
        return normal

    async def texts(self) -> dict[str, str]:
        """Every text file by path, sorted; hidden folders, caches and binary files left out."""
        try:
            files = await self._operations.export(".", max_bytes=MAX_TREE_BYTES)
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

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        timeout_s: float,
        max_output_bytes: int,
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
    ) -> ExecResult:
        """Python runs warm: the sandbox's own interpreter forks instead of starting. A command line that is too long for a word of
        another goes to its shell by stdin."""
        if isinstance(argv, str) and not stdin and len(argv.encode()) > LONGEST_ARGUMENT_BYTES:
            argv, stdin = ["/bin/sh", "-c", 'eval "$(cat)"'], argv.encode()
        warm = not isinstance(argv, str) and bool(argv) and argv[0] == "python"
        command = argv if isinstance(argv, str) else list(argv)
        more = {**({"env": env} if env else {}), **({"stdin": stdin} if stdin else {})}
        try:
            return await self._operations.run(
                command, timeout_s=timeout_s, max_output_bytes=max_output_bytes, warm=warm, **more
            )
        except UserError as error:
            raise WorkspaceError(f"cannot run: {type(error).__name__}") from error

    async def output(self, name: str, offset: int, max_bytes: int) -> bytes:
        """A piece of a file in $OUTPUTS; nothing where there is none."""
        try:
            return await self._operations.read(f"{OUTPUTS_FOLDER}/{name}", max_bytes=max_bytes, offset=offset)
        except (UserError, OSError):
            return b""

    async def keep_output(self, name: str, data: bytes) -> str:
        """Store a whole output in addition to the files; the name under which tools and shell know it, or "" on a full disk."""
        try:
            await self._operations.write(f"{OUTPUTS_FOLDER}/{name}", data)
        except (UserError, OSError):
            return ""
        return f"{OUTPUTS}/{name}"

    async def _store(self, path: str, data: bytes) -> None:
        try:
            await self._operations.write(path, data)
        except PathOutside:
            raise WorkspaceError(f"{path} lies outside of the workspace") from None
        except (UserError, OSError) as error:
            raise WorkspaceError("disk full" if isinstance(error, DiskFull) else f"cannot write {path}") from error

    async def _replace(self, path: str, data: bytes) -> None:
        """Write a place that may be written, through a link if one is there; the journal gets both sides, unless the old content is too large
        to be kept."""
        place = self._inside(path)
        before = await self.content_before(path)
        try:
            await self._store(place, data)
        except WorkspaceError as error:
            target = None if isinstance(error.__cause__, DiskFull) else await self._link(place)
            if target is None:
                raise
            place = self._inside(target)
            await self._store(place, data)
        if not isinstance(before, FileTooLarge):
            self._tell(place, before, data)

    async def content_before(self, path: str) -> bytes | FileTooLarge | None:
        """A file's content before a change, None where there is no file. Raises WorkspaceError."""
        try:
            return await self.bytes_of(path)
        except FileTooLarge as large:
            return large

    def _tell(self, path: str, before: bytes | None, after: bytes | None) -> None:
        self.originals.setdefault(path, before)
        if self._journal is not None:
            self._journal(path, before, after)

    def _inside(self, path: str) -> str:
        """A place that may name a file; whether one outside may be written, the machine decides."""
        place = self.place(path)
        if place == ".":
            raise WorkspaceError(f"{path} is a folder, not a file")
        if path.endswith("/"):
            raise WorkspaceError(f"{path} names a folder; give the path of the file, without the slash at its end")
        return place

    async def _link(self, place: str) -> str | None:
        """Where links on the way to a place lead, which a sandbox never follows; None if there is none, and for kept outputs, which a folder
        of the host keeps under another name than its commands see.

        Raises WorkspaceError if they lead out.
        """
        if place.startswith(f"{OUTPUTS_FOLDER}/"):
            return None
        argv = ["/bin/sh", "-c", 'pwd -P; readlink -f -- "$1"', "link", place]
        found = await self.run(argv, timeout_s=10, max_output_bytes=1 << 14)
        root, _, target = found.out.decode(errors="replace").removesuffix("\n").partition("\n")
        if found.rc != 0 or target in ("", place, posixpath.join(root, place)):
            return None
        if not target.startswith(root.rstrip("/") + "/"):
            raise WorkspaceError(f"{place} lies outside of the workspace")
        return target.removeprefix(root.rstrip("/") + "/")

    async def _there(self, place: str) -> bool:
        """Whether its folder lists it as a file."""
        return await self._kind(place) == "file"

    async def _kind(self, place: str) -> str:
        """What its folder lists it as: file, dir, link or other; "" where it is not listed."""
        folder, name = posixpath.split(place)
        try:
            siblings = await self._operations.list(folder or ".", recursive=False, max_entries=MAX_ENTRIES)
        except (UserError, OSError):
            return ""
        return next((entry.kind for entry in siblings if entry.path == name), "")

    async def _similar(self, path: str) -> str:
        """The words "; did you mean …" with files of a like name in the same folder, or nothing. A name that is no UTF-8 is none that
        a call could hold."""
        folder, name = posixpath.split(self.place(path))
        try:
            siblings = await self._operations.list(folder or ".", recursive=False, max_entries=MAX_ENTRIES)
        except (UserError, OSError):
            return ""
        names = sorted(entry.path for entry in siblings if entry.kind == "file" and is_whole(entry.path))
        like = similar(name, names, 3)
        return f"; did you mean {', '.join(posixpath.join(folder, one) for one in like)}?" if like else ""
