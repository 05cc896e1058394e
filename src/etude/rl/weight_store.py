"""The run's own weight store: where it is, and that it is this run's (promise 6: nothing of another run is written over)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etude.learn.weights.errors import ForeignChain
from etude.learn.weights.store import WeightStore
from etude.rl.settings import RlSettings

if TYPE_CHECKING:
    from etude.rl.ledger import Progress, RlLedger

FOLDER = "weights"


def store_of(settings: RlSettings, folder: Path) -> Path | str:
    """`rl.weight_store`, or the run folder's own."""
    return place_of(settings.weight_store) if settings.weight_store else folder / FOLDER


def place_of(address: str) -> Path | str:
    """A store as the settings name it; a folder by its whole path, for the processes have directories of their own."""
    return address if "://" in address else Path(address).absolute()


def require_own(settings: RlSettings, folder: Path, ledger: RlLedger, progress: Progress) -> None:
    """Asked before anything is published: a store is this run's if it was empty when the run first named it, and every version in it has the
    digest of the step that the ledger tells of. Raises ForeignChain; BadStore, ForeignFormat where it can't be read."""
    store = WeightStore(store_of(settings, folder))
    index = store.index()
    named = [entry["url"] for entry in ledger.entries if entry["kind"] == "store"]
    if index.entries and settings.weight_store and store.url not in named:
        raise ForeignChain(
            f"rl.weight_store: {store.url} holds version {index.newest} of another run, and this run has written nothing there: give it an empty "
            "place, or the folder of the run whose weights these are"
        )
    for entry in index.entries:
        mine = progress.digests.get(entry.version - 1)
        if entry.version and entry.digest != mine:
            raise ForeignChain(
                f"{store.url} holds version {entry.version} with digest {entry.digest[:12]}, this run's ledger has "
                f"{f'{mine[:12]} for it' if mine else 'no such version'}: the store is another run's. Give rl.weight_store the place of this one, "
                "or an empty one; nothing was written"
            )
    if settings.weight_store and store.url not in named:
        ledger.write("store", url=store.url)
