"""Files of somebody else's folder: plain ones alone, and not larger than a task can hold."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path

from etude.tasks.errors import TaskError

MAX_FILE_BYTES = 8 << 20  # what a task's file may be: it is held as text


@dataclass(frozen=True)
class FolderFiles:
    """Below one folder, by path: text as it is, and what is no UTF-8 in base64."""

    texts: dict[str, str] = field(default_factory=dict)
    binaries: dict[str, str] = field(default_factory=dict)

    def bytes(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in self.texts.items()} | {
            path: base64.b64decode(data) for path, data in self.binaries.items()
        }


def files_below(folder: Path) -> FolderFiles:
    """Every file; none where there is no such folder. Raises TaskError."""
    found = FolderFiles()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_symlink() or path.is_file():
            data, name = _bytes(path), path.relative_to(folder).as_posix()
            try:
                found.texts[name] = data.decode("utf-8")
            except UnicodeDecodeError:
                found.binaries[name] = base64.b64encode(data).decode()
    return found


def maybe_text(path: Path) -> str:
    """Empty where there is no such file. Raises TaskError."""
    return text_of(path) if path.is_symlink() or path.is_file() else ""


def text_of(path: Path) -> str:
    """Raises TaskError."""
    try:
        return _bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise TaskError(f"{path} is no UTF-8 text") from None


def _bytes(path: Path) -> bytes:
    """A link could show any file of this machine, and is refused."""
    if path.is_symlink():
        raise TaskError(f"{path} is a link; a task's folder holds plain files alone")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TaskError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB")
        return path.read_bytes()
    except FileNotFoundError:
        raise TaskError(f"{path} is missing: the task can't be imported without it") from None
