"""Names of snapshots and images: one small file each, which holds a digest. A name is on the disk when it has been given."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from etude.layers.errors import LayerError

_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BadName(LayerError):
    """A name that can't be given."""


def require(name: str) -> None:
    if not _FORM.fullmatch(name) or _DIGEST.fullmatch(name):
        raise BadName(
            f"{name!r} can't be a snapshot's name: letters, digits and ._:/@+- from a letter or digit on, "
            "at most 200, and no digest"
        )


class Names:
    """A folder of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def give(self, name: str, digest: str) -> None:
        """Takes it from whoever had it."""
        require(name)
        path = self._folder / quote(name, safe="")
        fresh = self._folder / f".{os.urandom(6).hex()}"
        with fresh.open("wb") as file:
            file.write(digest.encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def take(self, name: str) -> bool:
        """Whether there was one."""
        try:
            (self._folder / quote(name, safe="")).unlink()
        except FileNotFoundError:
            return False
        return True

    def find(self, name: str) -> str | None:
        try:
            return (self._folder / quote(name, safe="")).read_text()
        except OSError:  # none there, or a text too long to be a name
            return None

    def all(self) -> dict[str, str]:
        if not self._folder.is_dir():
            return {}
        found = {unquote(path.name): path for path in self._folder.iterdir() if not path.name.startswith(".")}
        return {name: path.read_text() for name, path in sorted(found.items()) if path.exists()}
