"""The layer store of a verb: the one of the option, or else the one of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from etude.sandbox.layers.store import LayerStore

StoreAt = Annotated[
    Path | None,
    typer.Option("--store", metavar="DIR", help="The folder of layers. Default: the one that sandboxes use."),
]


@contextmanager
def opened(folder: Path | None) -> Iterator[LayerStore]:
    """Turn an error of the layer store into the sandbox package's error."""
    from etude.pipeline.recipe.recipe import Recipe
    from etude.sandbox.snapshots.cache import open_store
    from etude.sandbox.snapshots.errors import translate_layer_errors

    with open_store(str(folder) if folder else Recipe().sandbox.layers) as store, translate_layer_errors():
        yield store


def size(count_bytes: int) -> str:
    return f"{count_bytes / 1e6:,.1f} MB"
