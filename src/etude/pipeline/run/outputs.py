"""Which files stages write, by their names. What a stage's folder holds besides is a person's, whenever it was put there."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath

NAMES = (
    *("*.json", "*.jsonl", "*.zst", "*.bin", "*.npy", "*.npz", "*.fp", "*.tokens", "*.pt", "*.safetensors", "*.html"),
    # What a checkpoint carries over from the base model.
    *("README.md", "*.jinja", "LICENSE*", "LICENCE*", "NOTICE*", "tokenization_*.py"),
    *("vocab.txt", "merges.txt", "tokenizer.model", "tiktoken.model"),
    # What a kill may leave: files that were to be renamed when they are whole.
    *("*.part", "*.tmp", ".*.json.[0-9]*", ".lock"),
)
# Folders whose files have any name: downloads by their checksum, what an archive held, what vLLM wrote.
FOLDERS = ("downloads/artefacts", "downloads/index", "downloads/locks", "downloads/unpacked", "rl/vllm")


def is_output(folder: str, path: str) -> bool:
    """Whether the stage of `folder` writes a file of that `path` in it."""
    name = PurePosixPath(path).name
    place = f"{folder}/{path}"
    return any(fnmatchcase(name, one) for one in NAMES) or any(place.startswith(f"{one}/") for one in FOLDERS)
