"""Names of snapshots and images: one small file each, which holds a digest. A name is on the disk when it has been given."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

from etude.core.files import replace_file
from etude.sandbox.layers.errors import LayerError

_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_QUOTED = 250  # of a file's name


class BadName(LayerError):
    """A name that can't be given."""


def require_name(name: str) -> None:
    if not _FORM.fullmatch(name) or is_digest(name) or len(quote(name, safe="")) > _MOST_QUOTED:
        raise BadName(
            f"{name!r} can't be a snapshot's name: letters, digits and ._:/@+- from a letter or digit on, "
            f"at most 200 (fewer with many of :/@+, which count three times in a file's name), and no digest"
        )


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


class SnapshotNames:
    """A folder of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def give(self, name: str, digest: str) -> None:
        """Takes it from its former holder."""
        require_name(name)
        path = self._folder / quote(name, safe="")
        replace_file(path, digest, durable=True)

    def take(self, name: str) -> bool:
        """Whether there was one; there is none of what can't be a name."""
        if not _FORM.fullmatch(name):
            return False
        try:
            (self._folder / quote(name, safe="")).unlink()
        except FileNotFoundError:
            return False
        return True

    def find(self, name: str) -> str | None:
        """None also for what can't be a name."""
        if not _FORM.fullmatch(name):
            return None
        try:
            return (self._folder / quote(name, safe="")).read_text()
        except OSError:
            return None

    def all(self) -> dict[str, str]:
        if not self._folder.is_dir():
            return {}
        found = {unquote(path.name): path for path in self._folder.iterdir() if not path.name.startswith(".")}
        return {name: path.read_text() for name, path in sorted(found.items()) if path.exists()}
