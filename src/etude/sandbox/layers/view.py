"""A chain as who is inside sees it: every path once, with the layer that it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etude.sandbox.layers.manifest import LayerEntry, LayerManifest
from etude.sandbox.layers.snapshot import Snapshot

if TYPE_CHECKING:
    from etude.sandbox.layers.store import LayerStore


@dataclass(frozen=True)
class LayerView:
    """`entries` has no `gone` and nothing hidden; `origin` says for each path the digest of the layer whose file is seen."""

    entries: dict[str, LayerEntry]
    origin: dict[str, str]

    @classmethod
    def of(cls, store: LayerStore, snapshot: Snapshot) -> LayerView:
        return cls.stack((digest, store.manifest(digest)) for digest in reversed(snapshot.layers))

    @classmethod
    def stack(cls, lowest_first: Iterable[tuple[str, LayerManifest]]) -> LayerView:
        view = cls({}, {})
        for digest, manifest in lowest_first:
            view.apply(manifest.entries, digest)
        return view

    def apply(self, layer: Iterable[LayerEntry], digest: str) -> None:
        """Put one more layer on top. A folder comes before what is in it, in every manifest."""
        layer = list(layer)
        hidden = {entry.path for entry in layer if self._hides(entry)}
        if hidden:
            for path in [path for path in self.entries if _below_any(path, hidden)]:
                del self.entries[path], self.origin[path]
        for entry in layer:
            if entry.kind == "gone":
                self.entries.pop(entry.path, None)
                self.origin.pop(entry.path, None)
            else:
                self.entries[entry.path] = replace(entry, opaque=False) if entry.opaque else entry
                self.origin[entry.path] = digest

    def _hides(self, entry: LayerEntry) -> bool:
        """Whether what lower layers have below this path is out of sight."""
        there = self.entries.get(entry.path)
        if there is None or there.kind != "dir":
            return False
        return entry.kind != "dir" or entry.opaque

    @property
    def contents(self) -> str:
        """A digest of what is seen, however many layers it comes from."""
        return LayerManifest.of(list(self.entries.values())).digest

    def below(self, folder: str) -> dict[str, LayerEntry]:
        """What lies under a folder, by its path from there."""
        prefix = folder.strip("/") + "/" if folder.strip("/") else ""
        return {path[len(prefix) :]: entry for path, entry in self.entries.items() if path.startswith(prefix)}


def _below_any(path: str, folders: set[str]) -> bool:
    while path := os.path.dirname(path):
        if path in folders:
            return True
    return False
