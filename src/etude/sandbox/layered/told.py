"""What goes wrong with layers, as errors of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etude.sandbox import errors
from etude.sandbox.layers import errors as layers
from etude.sandbox.layers.names import BadName

_RETRY_S = 60.0  # a full disk seldom empties sooner


@contextmanager
def told() -> Iterator[None]:
    """The caller's or the inside's doing is a UserError; a damaged store and a full host disk are ours."""
    try:
        yield
    except layers.LayerCorrupt as error:
        raise errors.LayerCorrupt(str(error)) from error
    except (layers.UnknownSnapshot, layers.Hostile, layers.BadImage, BadName) as error:
        raise errors.UserError(str(error)) from error
    except layers.StoreFull as error:
        raise errors.CapacityExhausted(str(error), _RETRY_S) from error
    except OSError as error:
        raise errors.InfraError(f"the layer store: {error}") from error
