"""Directories of adapters, and how one becomes a checkpoint directory: links to the files of its base, and a link to the adapter.

Whatever reads a checkpoint's config, tokenizer or chat template reads those of the base. What loads weights puts the adapter on them in memory
(`load_checkpoint`). The directory of links is in the user's cache and takes no space; its name is a digest of what it leads to.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from etude.learn.weights.hf_files import INDEX, SINGLE, CheckpointError, read_object

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER = "adapter"  # the folder next to the merged checkpoint of a stage
BASE_LINK, ADAPTER_LINK = "etude-base", "etude-adapter"  # in a directory of links


class BaseError(CheckpointError):
    """An adapter's base can't be had, or is another than the adapter was trained on. The message ends with what to do."""

    def __init__(self, adapter: Path, problem: str) -> None:
        super().__init__(
            f"{problem}; set base_model_name_or_path in {adapter / CONFIG} to the directory or hub name of its base"
        )


class AdaptedCheckpoint(NamedTuple):
    """The two directories that a directory of links joins. The base may be one of links itself."""

    base: Path
    adapter: Path


def is_adapter(folder: Path) -> bool:
    """Whether a directory holds an adapter. Raises CheckpointError for one that holds whole weights too: they may be the base's or merged ones."""
    if not (folder / CONFIG).is_file():
        return False
    whole = [name for name in (INDEX, SINGLE) if (folder / name).exists()]
    if whole and (folder / TENSORS).exists():
        raise CheckpointError(
            f"{folder} holds {TENSORS} and the whole weights of {whole[0]}, which may be the base's or merged ones; move one of them to another "
            "directory"
        )
    return not whole


def base_name(folder: Path) -> str:
    """What an adapter's config names as its base; empty where it names none. Raises CheckpointError for a damaged config."""
    name = read_object(folder / CONFIG).get("base_model_name_or_path")
    return name if isinstance(name, str) else ""


def adapted_checkpoint(folder: Path | str) -> AdaptedCheckpoint | None:
    """Base and adapter of a directory that `join` made; None for any other."""
    links = [Path(folder) / name for name in (BASE_LINK, ADAPTER_LINK)]
    if not all(link.is_symlink() for link in links):
        return None
    return AdaptedCheckpoint(*(link.readlink() for link in links))


def innermost_base(folder: Path) -> Path:
    """The directory whose files a checkpoint directory leads to: itself, if it is none of links."""
    while (joined := adapted_checkpoint(folder)) is not None:
        folder = joined.base
    return folder


def join(base: Path, adapter: Path, cache: Path) -> Path:
    """The directory of links in `cache` for an adapter on its base. Raises CheckpointError for a base that is no checkpoint, and OSError."""
    base, adapter = base.resolve(), adapter.resolve()
    if not (base / "config.json").is_file():
        raise CheckpointError(
            f"the base {base} of {adapter} has no config.json; name a checkpoint directory as the base"
        )
    links = {file.name: file for file in innermost_base(base).iterdir()} | {BASE_LINK: base, ADAPTER_LINK: adapter}
    rows = "".join(f"{name}\0{target}\0" for name, target in sorted(links.items()))
    digest = hashlib.sha256(rows.encode(errors="surrogateescape")).hexdigest()[:16]
    folder = cache / f"{adapter.parent.name}-{adapter.name}-{digest}"
    if folder.is_dir() and set(os.listdir(folder)) == links.keys():
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # a cleaner of caches took a part of it
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".joining-", dir=cache) as place:
        draft = Path(place) / folder.name
        draft.mkdir()
        for name, target in links.items():
            (draft / name).symlink_to(target)
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was quicker
                raise
    return folder
