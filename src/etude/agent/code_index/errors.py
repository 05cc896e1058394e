"""What the index refuses, said for the person or the model that asked."""

from __future__ import annotations

from etude.core.redact.keys import mask_keys


class IndexRefused(ValueError):
    """A request that can't be answered as put: the message names the value and the remedy."""


class NotBuilt(IndexRefused):
    """Nothing is indexed yet."""


class TornStore(Exception):
    """Files of a store that are missing, torn or of another format. Never reaches a user: the store is rebuilt with a notice."""


class EmbedderFailed(RuntimeError):
    """The embeddings endpoint did not answer as it must. The message holds no key."""

    def __init__(self, message: str) -> None:
        super().__init__(mask_keys(message))


class ServiceLost(ConnectionError):
    """The index service can't be reached, or went away."""
