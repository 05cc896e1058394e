"""Translates errors of the layer store into sandbox errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etude.sandbox import errors
from etude.sandbox.layers import errors as layers
from etude.sandbox.layers.names import BadName

_RETRY_S = 60.0  # a full disk seldom empties sooner


@contextmanager
def translate_layer_errors() -> Iterator[None]:
    """A mistake of the caller or the inside is a UserError. A damaged store and a full host disk are infrastructure errors."""
    try:
        yield
    except layers.CorruptLayer as error:
        raise errors.LayerCorrupt(str(error)) from error
    except (layers.UnknownSnapshot, layers.UnsafeContent, layers.BadImage, BadName) as error:
        raise errors.UserError(str(error)) from error
    except layers.StoreFull as error:
        raise errors.CapacityExhausted(str(error), _RETRY_S) from error
    except OSError as error:
        raise errors.InfraError(f"the layer store: {error}") from error
