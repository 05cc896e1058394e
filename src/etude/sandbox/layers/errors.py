"""What can be wrong with layers."""

from __future__ import annotations


class LayerError(Exception):
    """Base of all errors of this room."""


class CorruptLayer(LayerError):
    """What lies in the store is not what its digest says. Never served."""


class UnknownSnapshot(LayerError):
    """No snapshot or image has that name or digest here."""


class UnsafeContent(LayerError):
    """An archive or a tree that leads outside, holds devices, or is larger than it may be. Nothing of it is kept."""


class BadImage(LayerError):
    """A file or folder that is no image of a kind known here, or not the one that its digests say."""


class StoreFull(LayerError):
    """The disk of the store is full. What was there before is as it was."""
