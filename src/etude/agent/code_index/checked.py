"""Small JSON files with a checksum, replaced whole: a reader gets what was written or learns that it did not."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from etude.agent.code_index.errors import TornStore


def write_checked(path: Path, body: dict[str, Any]) -> None:
    """On the disk when this returns; a kill leaves the old file or the new one."""
    text = json.dumps(body, separators=(",", ":"))
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "w") as file:
        file.write(f"{zlib.crc32(text.encode()):08x} {text}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too
    finally:
        os.close(folder)


def read_checked(path: Path) -> dict[str, Any]:
    """Raises TornStore for a file that is missing or not as it was written."""
    try:
        check, _, text = path.read_text().partition(" ")
        text = text.removesuffix("\n")
        whole = int(check, 16) == zlib.crc32(text.encode())
    except (OSError, ValueError) as error:
        raise TornStore(f"{path.name}: {error}") from error
    if not whole:
        raise TornStore(f"{path.name} is not as it was written")
    return json.loads(text)
