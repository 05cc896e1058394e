"""The identity of a checkpoint directory, computed from its content: changes when its weights do, stays when it is copied."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# Of each file of weights, at both ends: training moves every tensor, and terabytes are not read for a name.
ENDS_BYTES = 1 << 20


def identity(folder: Path) -> str:
    """16 hex digits. Small files whole, weights by size and both ends."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".json", ".safetensors", ".jinja"):
            continue
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{path.name} {size} ".encode() + file.read(ENDS_BYTES))
            file.seek(max(0, size - ENDS_BYTES))
            digest.update(file.read(ENDS_BYTES))
    return digest.hexdigest()[:16]
