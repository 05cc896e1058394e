"""Reads one file of a folder that somebody else filled: a cloned repository, a workspace that a model writes.

Promises: nothing outside of the folder is read, also through links; no more is read than the caller allows; a pipe or a device is
refused and not waited for. `read_file` and everything that the host reads by itself (AGENTS.md, .mcp.json) come through here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from etude.sandbox.errors import UserError

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
UTF8_MARK = b"\xef\xbb\xbf"


class FileRefused(Exception):
    """A file that is there and may not be read; the message names it and says why."""


def read_inside(root: Path, name: str, max_bytes: int) -> bytes | None:
    """The file `name` below `root`, None where there is none. Links are followed inside of `root`. Raises FileRefused."""
    path = os.path.join(root, name)
    if not os.path.lexists(path):
        return None
    real = os.path.realpath(path)
    if not is_inside(real, [os.path.realpath(root)]):
        raise FileRefused(f"{path} is a link that leads out of {root}; it is not read")
    try:
        data = read_regular(real, max_bytes + 1)
    except UserError:
        raise FileRefused(f"{path} is not a regular file; it is not read") from None
    except OSError as error:
        raise FileRefused(f"{path} can't be read ({error.strerror})") from None
    if len(data) > max_bytes:
        raise FileRefused(f"{path} is larger than {max_bytes >> 10} KiB; it is not read")
    return data


def is_inside(real: str, folders: Iterable[str]) -> bool:
    """Whether a real path is one of some real folders, or lies below one."""
    return any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders)


def read_regular(path: str, max_bytes: int, offset: int = 0) -> bytes:
    """A piece of a regular file. The last part of `path` is no link: it was resolved. Raises UserError for any other kind, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UserError(f"{path} is not a regular file")
    with open(fd, "rb") as file:
        file.seek(offset)
        return file.read(max_bytes)


def decode_text(data: bytes) -> str:
    """The text of a file that a person wrote: a byte-order mark of UTF-8 or UTF-16 decides and is dropped, what is no text is U+FFFD."""
    if data.startswith(UTF16_MARKS):
        return data.decode("utf-16", "replace")
    return data.removeprefix(UTF8_MARK).decode("utf-8", "replace")
