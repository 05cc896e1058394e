"""Digests of what lies in the folders that a recipe names: a stage that read them is stale when their contents change, not only their names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import xxhash

from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_identity import identity

# Behind the key in a stage's settings. An attempt that was begun before contents were noted is not stale for want of them.
CONTENTS = " (contents)"
SUFFIXES = (".jsonl", ".tokens", ".routes")  # of a session
CHUNK_BYTES = 1 << 22


def contents(recipe: Recipe, reads: Iterable[str]) -> dict[str, str]:
    """By key a digest of each folder that a stage with these `reads` takes from outside of the run. A folder that is not there has none."""
    read = set(reads)
    named = {"model.init": recipe.model.init, "run.sft_checkpoint": str(recipe.run.sft_checkpoint or "")}
    found = {
        key: identity(Path(name))
        for key, name in named.items()
        if name and _reads(read, key) and (Path(name) / "config.json").is_file()
    }
    if _reads(read, "sft.collected"):
        found |= {
            f"sft.collected.{folder}": session_folder_digest(Path(folder))
            for folder in recipe.sft.collected
            if Path(folder).is_dir()
        }
    return {key + CONTENTS: digest for key, digest in found.items()}


def session_folder_digest(folder: Path) -> str:
    """16 hex digits of the names and bytes of a folder's session files."""
    digest = xxhash.xxh3_64()
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES and path.is_file():
            digest.update(f"{path.name} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
    return digest.hexdigest()


def _reads(read: set[str], key: str) -> bool:
    return key in read or key.partition(".")[0] in read
