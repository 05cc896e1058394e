"""A checkpoint's folder from what a person names: a path, or a hub name, whose files are downloaded into the hub's cache first."""

from __future__ import annotations

from pathlib import Path

from etude.learn.weights.hub_name import hub_name


def checkpoint_folder(text: str | Path) -> Path:
    """The folder of a path or hub name. A path is returned as it is, also where nothing is there. Raises HubError, CheckpointError."""
    name = hub_name(str(text))
    if name is None:
        return Path(text)
    from etude.learn.weights.hub import fetch, resolve  # the library takes a third of a second to load
    from etude.learn.weights.hub_progress import DownloadLines

    return fetch(resolve(name), DownloadLines(str(name)))
