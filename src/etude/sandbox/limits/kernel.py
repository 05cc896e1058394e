"""The four things that are done to a control group's folder, none of which the rest of the room does by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NOT_YET = (errno.EBUSY, errno.ENOTEMPTY)  # processes in it are still dying


def make(folder: Path) -> None:
    os.mkdir(folder)


def write(file: Path, text: str) -> None:
    """Never makes the file: what the kernel did not offer must fail."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{file.name}={text}: {error.strerror}") from None
    finally:
        os.close(fd)


def counter(file: Path, name: str) -> int:
    """A number of a "name number" file; 0 where it is absent or gone."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        for line in os.read(fd, 4096).splitlines():
            key, _, value = line.partition(b" ")
            if key == name.encode():
                return int(value)
    finally:
        os.close(fd)
    return 0


def remove(folder: Path) -> bool:
    """False while something in it has not gone yet."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in _NOT_YET:
            return False
        raise
    return True
