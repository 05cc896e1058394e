"""A file as a task holds it: bytes, mode and link target as data, in dictionaries of texts and of bytes by path.

Most files of a repository are UTF-8 texts with mode 644, and are `str` and `bytes` as ever. All others (binary, Latin-1, executable, symbolic
links) are `FileText` and `FileBytes`: a text whose bytes that are no UTF-8 are lone surrogates (PEP 383), and bytes, both with git's mode. The
content of a link is its target. `text.encode()` gives the bytes of either, and equality is of content and mode.
"""

from __future__ import annotations

import base64
import hashlib
import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

Mode = Literal["100644", "100755", "120000"]
PLAIN: Mode = "100644"
EXECUTABLE: Mode = "100755"
LINK: Mode = "120000"
MODES: tuple[Mode, ...] = (PLAIN, EXECUTABLE, LINK)
C = TypeVar("C", str, bytes)


class FileBytes(bytes):
    """The content of a file that is not plain."""

    mode: Mode

    def __new__(cls, data: bytes = b"", mode: Mode = PLAIN) -> FileBytes:
        made = super().__new__(cls, data)
        made.mode = mode
        return made

    def __eq__(self, other: object) -> bool:
        return bytes.__eq__(self, other) is True and self.mode == mode_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = bytes.__hash__

    def __getnewargs__(self) -> tuple[bytes, Mode]:  # type: ignore[override]
        return bytes(self), self.mode


class FileText(str):
    """The same as a text."""

    mode: Mode

    def __new__(cls, text: str = "", mode: Mode = PLAIN) -> FileText:
        made = super().__new__(cls, text)
        made.mode = mode
        return made

    def encode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> bytes:
        """The file's bytes; they keep the mode."""
        return file_bytes(super().encode(encoding, errors), self.mode)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True and self.mode == mode_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getnewargs__(self) -> tuple[str, Mode]:  # type: ignore[override]
        return str(self), self.mode


def mode_of(content: object) -> Mode:
    """git's mode of a file's content."""
    return getattr(content, "mode", PLAIN)


def file_bytes(data: bytes, mode: Mode = PLAIN) -> bytes:
    return bytes(data) if mode == PLAIN else FileBytes(data, mode)


def file_text(data: bytes, mode: Mode | None = None) -> str:
    """`str` for a plain UTF-8 text, else a FileText; the mode is that of `data` unless it is given."""
    mode = mode_of(data) if mode is None else mode
    text = bytes(data).decode("utf-8", "surrogateescape")
    if mode == PLAIN and is_text(text):
        return text
    return FileText(text, mode)


def is_text(content: str) -> bool:
    """Whether it is a text that people and parsers read: no link, no binary data, nothing that is no UTF-8."""
    if mode_of(content) == LINK or "\0" in content:
        return False
    try:
        str.encode(content, "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def leads_out(path: str, target: str) -> bool:
    """Whether a link leads out of the tree that it is in."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or place == ".." or place.startswith("../")


def like(before: str | None, text: str) -> str:
    """An edited text with the mode that the file had, and with the bytes that are no UTF-8."""
    mode = EXECUTABLE if mode_of(before) == EXECUTABLE and mode_of(text) == PLAIN else mode_of(text)
    return file_text(str.encode(text, "utf-8", "surrogateescape"), mode)


def laid_over(under: Mapping[str, C], over: Mapping[str, C]) -> dict[str, C]:
    """Two trees as one: `over` wins. A path of `under` goes where one of `over` is its parent or is below it, so that no link or file of
    `under` can be in the place of a folder of `over`."""
    folders = {folder for path in over for folder in folders_of(path)}
    kept = {
        path: content
        for path, content in under.items()
        if path not in folders and over.keys().isdisjoint(folders_of(path))
    }
    return {**kept, **over}


def folders_of(path: str) -> list[str]:
    """The folders that a path is in, without the root: `a/b/c` is in `a` and `a/b`."""
    return [path[:at] for at, letter in enumerate(path) if letter == "/" and at]


def same_content(before: str, after: bytes | None) -> bool:
    """Whether a file is there with the bytes that it had, whatever its mode; a link is the same only as a link."""
    is_link = mode_of(before) == LINK
    return (
        after is not None
        and bytes(after) == bytes(before.encode("utf-8", "surrogateescape"))
        and (mode_of(after) == LINK) == is_link
    )


def texts_of(files: Mapping[str, str]) -> dict[str, str]:
    """The files that are texts."""
    return {path: text for path, text in files.items() if is_text(text)}


def to_json(content: str) -> str | dict[str, str]:
    """A plain text as it is; any other file with its mode, and in base64 where it is no text."""
    if mode_of(content) == PLAIN and is_text(content):
        return str(content)
    data = content.encode("utf-8", "surrogateescape")
    if b"\0" not in data and (text := _utf8(data)) is not None:
        return {"mode": mode_of(content), "text": text}
    return {"mode": mode_of(content), "base64": base64.b64encode(data).decode()}


def _utf8(data: bytes) -> str | None:
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return None


def from_json(value: Any) -> str:
    """The inverse. Raises ValueError for what is no file's content."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or value.get("mode") not in MODES or len({"text", "base64"} & value.keys()) != 1:
        raise ValueError(f"{str(value)[:80]!r} is no file's content: a text, or mode and text or base64 are wanted")
    data = value["text"].encode() if "text" in value else base64.b64decode(value["base64"], validate=True)
    return file_text(data, value["mode"])


def files_to_json(files: Mapping[str, str]) -> dict[str, str | dict[str, str]]:
    return {path: to_json(text) for path, text in files.items()}


def files_from_json(value: Any) -> dict[str, str]:
    """Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"files are a table by path, not {str(value)[:80]!r}")
    return {path: from_json(content) for path, content in value.items()}


def hidden_to_json(hidden: Mapping[str, Any]) -> dict[str, Any]:
    """A task's hidden part; the reference's files in it may be of any kind."""
    files = hidden.get("files")
    texts = isinstance(files, Mapping) and all(isinstance(text, str) for text in files.values())
    return {**hidden, "files": files_to_json(files)} if texts else dict(hidden)  # type: ignore[arg-type]


def hidden_from_json(hidden: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse. Raises ValueError."""
    files = hidden.get("files")
    is_encoded = isinstance(files, dict) and all(
        isinstance(one, str) or isinstance(one, dict) and "mode" in one for one in files.values()
    )
    return {**hidden, "files": files_from_json(files)} if is_encoded else dict(hidden)


def digest_of(files: Mapping[str, bytes], prefix: bytes = b"") -> str:
    """SHA-256 of a tree: names, modes and contents. Lengths before bytes, so that no two trees run into the same text."""
    digest = hashlib.sha256(prefix)
    for path in sorted(files):
        name = path.encode(errors="surrogateescape")
        kind = b"" if mode_of(files[path]) == PLAIN else mode_of(files[path]).encode() + b" "
        digest.update(b"%d %d " % (len(name), len(files[path])) + kind + name + files[path])
    return digest.hexdigest()


def write_file(root: Path, path: str, data: bytes) -> None:
    """The file below a folder of the host's, with its mode, or as a link; what was there goes. Raises ValueError for a path that leads out
    of the folder or through a link."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise ValueError(f"{path!r} leads out of its folder")
    place = root
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink():
            raise ValueError(f"{path!r} leads through the link {place.relative_to(root)}")
        place.mkdir(exist_ok=True)
    place = place / parts[-1]
    if place.is_symlink() or place.exists():
        place.unlink()
    if mode_of(data) == LINK:
        place.symlink_to(os.fsdecode(bytes(data)))
        return
    place.write_bytes(data)
    place.chmod(0o755 if mode_of(data) == EXECUTABLE else 0o644)


def read_file(place: Path) -> bytes:
    """A file of the host's, or a link that is not followed. Raises OSError."""
    if place.is_symlink():
        return FileBytes(os.fsencode(os.readlink(place)), LINK)
    return file_bytes(place.read_bytes(), EXECUTABLE if place.stat().st_mode & 0o100 else PLAIN)


def files_below(root: Path, leave_out: Collection[str] = ()) -> Iterator[str]:
    """Paths of the files and links below a folder, in order; `leave_out`: names of folders that are not entered."""
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if name not in leave_out and name not in links)
        for name in sorted((*names, *links)):
            place = Path(folder, name)
            if place.is_symlink() or place.is_file():
                yield place.relative_to(root).as_posix()
