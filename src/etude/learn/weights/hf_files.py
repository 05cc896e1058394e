"""Which file of a Hugging Face checkpoint directory holds which tensor: the index decides.

`model.safetensors.index.json` is an allow-list. A tensor comes from the file that `weight_map` names and from no other, so that a stale copy of it in
a file that is listed for other tensors is never read; a tensor that the index does not name does not exist. Without an index it is
`model.safetensors`, all of it. Files of other people come in here, so nothing is opened outside of the directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


class CheckpointError(ValueError):
    """A checkpoint is damaged or does not hold what its model needs; the message names the file or the tensors."""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's file. Raises CheckpointError for a file that holds none."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object_of)
    except RecursionError as error:
        raise CheckpointError(
            f"{path} is nested too deeply to be a checkpoint's file; the checkpoint is damaged"
        ) from error
    except ValueError as error:  # no JSON, no UTF-8, a number of too many digits, a key twice
        raise CheckpointError(f"{path} is not JSON ({error}); the checkpoint is damaged") from error
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds a {type(raw).__name__} where an object belongs; the checkpoint is damaged")
    return raw


def listed_files(folder: Path) -> list[str]:
    """The names of the files of weights, whether they are there or not. Raises CheckpointError for an index that is damaged."""
    index = folder / INDEX
    return sorted(set(_weight_map(index).values())) if index.exists() else [SINGLE]


def tensor_files(folder: Path) -> dict[str, frozenset[str] | None]:
    """By file name the tensors that are taken from it, None for all of them. Raises CheckpointError, also for a file that is not there."""
    index = folder / INDEX
    files: dict[str, frozenset[str] | None] = {SINGLE: None}
    if index.exists():
        keys: dict[str, list[str]] = {}
        for key, name in _weight_map(index).items():
            keys.setdefault(name, []).append(key)
        files = {name: frozenset(taken) for name, taken in keys.items()}
    for name in files:
        try:
            there = (folder / name).is_file()
        except OSError as error:
            raise CheckpointError(
                f"{index} names a file that can't be looked up ({error.strerror}): {name:.100}"
            ) from error
        if not there:
            raise CheckpointError(f"{folder / name} does not exist; the checkpoint is incomplete")
    return files


def _weight_map(index: Path) -> dict[str, str]:
    found = read_object(index).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise CheckpointError(f"{index} has no weight_map from tensors to files; the checkpoint is damaged")
    for key, name in found.items():
        if not isinstance(name, str) or not _is_plain(name):
            raise CheckpointError(
                f"{index} names {name!r:.100} as the file of {key}; a file of the same directory that ends in .safetensors belongs there"
            )
    return found


def _is_plain(name: str) -> bool:
    """A file's name, no path."""
    return name.endswith(".safetensors") and not any(part in name for part in ("/", "\\", "\0"))


def _object_of(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r:.100} is there twice")
        found[key] = value
    return found
