"""Why a receiver refuses weights. Each error names the piece at fault and what to do."""

from __future__ import annotations


class WeightsError(Exception):
    """Base of all refusals: the state that would have come out is not the state that was sent."""


class LayoutMismatch(WeightsError):
    """The tensors on the two sides differ in name, shape or type: no delta can connect them."""


class WrongBase(WeightsError):
    """The state at hand is not the one the delta was made from."""


class MissingShard(WeightsError):
    """A file the manifest names is not there."""


class CorruptShard(WeightsError):
    """A file's bytes are not the bytes that were written."""


class CorruptTensor(WeightsError):
    """All files are whole and the base is right, yet a tensor came out different: a fault of the codec or of memory."""


class Unreachable(WeightsError):
    """No chain of anchor and deltas leads to the wanted version."""


class ForkedChain(WeightsError):
    """Two different states claim the same version."""


class ForeignChain(WeightsError):
    """The store holds the weights of another run, or of another source: nothing in it is touched."""


class ForeignFormat(WeightsError):
    """The store is of another format, older or newer: nothing in it is read by guessing."""


class StoreTakenOver(WeightsError):
    """Another writer claimed the store; the caller must stop writing."""


class BadStore(WeightsError):
    """The place itself: credentials, a bucket that does not exist, a server that does not answer."""


class PublishFailed(WeightsError):
    """A version handed over earlier could not be published; its cause is chained."""
