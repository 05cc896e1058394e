"""The identity of a checkpoint directory, computed from its content: changes when its weights do, stays when it is copied."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from etude.learn.weights.adapter_folder import adapted_checkpoint

# Of each file of weights, at both ends: training moves every tensor, and terabytes are not read for a name.
ENDS_BYTES = 1 << 20


def identity(folder: Path) -> str:
    """16 hex digits. Small files whole, weights by size and both ends; also those of the adapters that the directory joins with a base."""
    digest, files = hashlib.sha256(), sorted(folder.iterdir())
    while (joined := adapted_checkpoint(folder)) is not None:
        files += sorted(joined.adapter.iterdir())
        folder = joined.base
    for path in files:
        if path.suffix not in (".json", ".safetensors", ".jinja"):
            continue
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{path.name} {size} ".encode() + file.read(ENDS_BYTES))
            file.seek(max(0, size - ENDS_BYTES))
            digest.update(file.read(ENDS_BYTES))
    return digest.hexdigest()[:16]
