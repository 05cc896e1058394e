"""What differs between two views: files and links; folders only show in what they hold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from etude.sandbox.layers.view import LayerView


@dataclass(frozen=True)
class LayerDifference:
    """`path` is relative to the root."""

    path: str
    kind: Literal["added", "changed", "removed"]


def differences(before: LayerView, after: LayerView) -> list[LayerDifference]:
    """In the order of paths' bytes. What became a link, or another mode, has changed."""
    found: list[LayerDifference] = []
    for path in sorted(before.entries.keys() | after.entries.keys(), key=os.fsencode):
        old, new = before.entries.get(path), after.entries.get(path)
        old = None if old is None or old.kind == "dir" else old
        new = None if new is None or new.kind == "dir" else new
        if old is None and new is not None:
            found.append(LayerDifference(path, "added"))
        elif new is None and old is not None:
            found.append(LayerDifference(path, "removed"))
        elif old is not None and new is not None and not old.same_as(new):
            found.append(LayerDifference(path, "changed"))
    return found
