"""The key/value cache: a preallocated buffer of slots that the rows of a batch address freely.

A slot holds one session's tokens, `lengths[slot]` of them. `CacheSpan` is one batch of new tokens on their way in: it knows
where each is written, which positions they have, and what they may see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from etude.learn.model.config import ModelConfig
from etude.learn.model.device import AVX512, INTEL


class CacheFull(ValueError):
    """New tokens do not fit into their slot."""


class KVCache:
    """`buffer` (layers, slots, max_len, width) of MLA latent + rope key, or of keys then values; `lengths` (slots,) on the CPU.

    Draft layers come behind those of the trunk.
    """

    def __init__(
        self,
        config: ModelConfig,
        slots: int,
        max_len: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if max_len > config.context_length:
            raise ValueError(f"max_len={max_len} exceeds the model's {config.context_length} positions; lower it")
        # Zeros, not empty: attention multiplies unread rows by probability 0, and 0 * NaN is NaN.
        layers = config.layers + config.mtp_layers
        self.buffer = torch.zeros(layers, slots, max_len, config.cache_width, device=device, dtype=dtype)
        self.lengths = torch.zeros(slots, dtype=torch.long)
        self.written = torch.zeros(slots, dtype=torch.long)  # entries behind it are zero
        self.slots, self.max_len = slots, max_len
        # Slots of one origin hold the same bits up to the smaller of their `shared` lengths: these were copied from one another.
        self.origins, self.shared = list(range(slots)), [0] * slots
        self._next_origin = slots

    def forget(self) -> None:
        """Hold no token in any slot."""
        self.lengths.zero_()
        self.shared = [0] * self.slots

    def clear(self, slot: int, keep: int = 0) -> None:
        """Forget all but the first `keep` tokens of a slot, and zero what lay behind them: masked entries are multiplied by probability 0, which
        a NaN that an earlier session left would survive."""
        self.lengths[slot] = min(int(self.lengths[slot]), keep)
        self.shared[slot] = min(self.shared[slot], keep)
        if (written := int(self.written[slot])) > keep:
            self.buffer[:, slot, keep:written] = 0
            self.written[slot] = keep

    def wipe(self, slot: int, start: int = 0, layers: slice = slice(None)) -> None:
        """Zero what lies from position `start` on, in these layers: after a number that is not finite, which masking does not hide."""
        self.buffer[layers, slot, start:] = 0
        self.shared[slot] = min(self.shared[slot], start)

    def cut(self, slots: Tensor, lengths: Tensor) -> None:
        """Forget all but the first `lengths` (B,) tokens of `slots` (B,); what was held longer is written over later."""
        if bool((lengths > self.lengths[slots]).any()):
            raise ValueError(
                f"slots {slots.tolist()} hold {self.lengths[slots].tolist()} tokens, fewer than {lengths.tolist()}"
            )
        self.lengths[slots] = lengths
        for slot, length in zip(slots.tolist(), lengths.tolist(), strict=True):
            self.shared[slot] = min(self.shared[slot], length)

    def copy(self, source: int, target: int, length: int) -> None:
        """Give `target` the first `length` tokens of `source`: a prompt shared by a group is computed once."""
        if length > int(self.lengths[source]):
            raise ValueError(f"slot {source} holds {int(self.lengths[source])} tokens, {length} were asked for")
        self.buffer[:, target, :length] = self.buffer[:, source, :length]
        self.lengths[target] = length
        self.written[target] = max(int(self.written[target]), length)
        if not self.shared[source]:
            self.origins[source], self.shared[source] = self._next_origin, length
            self._next_origin += 1
        self.origins[target], self.shared[target] = self.origins[source], min(self.shared[source], length)

    def alike(self, slots: Tensor) -> list[SharedRows]:
        """The rows of a batch in `slots` (B,), those together that begin with the same bits of SHARED_CONTEXT tokens or more, as far as copies
        tell; empty if no two do."""
        rows_of: dict[int, list[int]] = {}
        for row, slot in enumerate(slots.tolist()):
            known = self.shared[slot] >= SHARED_CONTEXT
            rows_of.setdefault(self.origins[slot] if known else -1 - row, []).append(row)
        if len(rows_of) == len(slots):
            return []
        held = [[self.shared[int(slots[row])] for row in rows] for rows in rows_of.values()]
        lengths = [min(each) if len(each) > 1 else 0 for each in held]
        return [SharedRows(torch.tensor(rows), length) for rows, length in zip(rows_of.values(), lengths, strict=True)]


# Floats of one row's context in one layer from which a copy of it costs more than a call for each row (one core: even at 512
# tokens of SmolLM2; at 1,536 and 32 rows a step takes 0.45 of the time).
LONG_CONTEXT = 1 << 17


# Floats of all rows' contexts in one layer from which attention reads neighbouring slots in place. Below, a copy brings them into the CPU's cache
# (two cores with AVX2, SmolLM2: 32 rows of 281 tokens 3.3 ms instead of 5.3 ms; 32 rows of 120 tokens 1.6 ms instead of 1.5 ms). On Intel's AVX-512
# the copy never pays: reading in place takes 0.67 to 0.79 of the time for 1 to 32 rows of 100 to 1,600 tokens.
READ_IN_PLACE = 0 if AVX512 and INTEL else 1 << 21


# Tokens that all rows begin with from which their attention is computed for all rows at once, one read of their keys for all.
SHARED_CONTEXT = 256


class SharedRows(NamedTuple):
    """Rows of a batch (b,) whose contexts are the same up to `length` tokens; 0: of one row, or of unlike ones."""

    rows: Tensor
    length: int


class ContextPart(NamedTuple):
    """Some rows of a batch, the positions that they attend to, and what the cache holds of these: (b, s, width). `whole`: a single row, of which
    it holds no more than the row's last token sees."""

    rows: slice | Tensor
    keys: slice
    context: Tensor
    whole: bool


class CacheSpan:
    """New tokens of a batch: `counts` (B,) of them for the rows in `slots` (B,), the longest row Tn of them.

    The model works on the N = sum(counts) tokens, flat; only attention sees (B, Tn) rows. They go behind what the slots hold,
    or to `before` (B,): draft layers keep entries of their own in the slots, fewer or more than the trunk has tokens.
    """

    def __init__(self, cache: KVCache, slots: Tensor, counts: Tensor, width: int, before: Tensor | None = None) -> None:
        own, before = before is None, cache.lengths[slots] if before is None else before  # (B,)
        self.cache, self.slots, self.width, self.batch = cache, slots, width, len(slots)
        self.ragged = self._check(counts, before)
        self.keys = int(self.after.max())  # S, the longest context of the batch
        self.shared = self._shared(int(before.min())) if own else []  # empty, or all rows
        cache.written[slots] = torch.maximum(cache.written[slots], self.after)
        device = cache.buffer.device
        positions, starts = before.unsqueeze(1), (slots * cache.max_len).unsqueeze(1)
        if width > 1:
            positions = positions + torch.arange(width)  # (B, Tn)
        self.bias = self._bias(positions, int(before.min()))
        self._folded: dict[tuple[int, int], Tensor] = {}  # `bias_for`, once for all layers
        self._windows: dict[int, Tensor] = {}
        self._places, self._before = positions, before  # (B, Tn), (B,)
        self.positions, self.write = positions.flatten().to(device), (starts + positions).flatten().to(device)
        if self.ragged:
            self.valid = (
                (torch.arange(width) < counts.unsqueeze(1)).flatten().nonzero().squeeze(1).to(device)
            )  # (N,) into B * Tn
            self.positions, self.write = self.positions[self.valid], self.write[self.valid]
        self._counts, self._slots = counts, slots.to(device)

    def _check(self, counts: Tensor, before: Tensor) -> bool:
        """Whether some row is shorter than others. Raises ValueError or CacheFull for rows that don't fit."""
        least, most = (int(x) for x in counts.aminmax())
        if counts.shape != self.slots.shape or least < 1 or most > self.width:
            raise ValueError(
                f"lengths {counts.tolist()} for {len(self.slots)} slots must each be between 1 and {self.width}"
            )
        self.after = before + counts
        full = int(self.after.max())
        if full > self.cache.max_len:
            raise CacheFull(
                f"slot {int(self.slots[int(self.after.argmax())])} would hold {full} tokens, the cache holds "
                f"{self.cache.max_len}; stop the session or build a longer cache"
            )
        return least < self.width

    def _shared(self, held: int) -> list[SharedRows]:
        """The rows in groups of like beginnings, where attending to these apart is worth it; empty otherwise. `held`: tokens that all hold."""
        if self.batch < 2 or held < SHARED_CONTEXT or self.cache.buffer.device.type != "cpu":
            return []
        return self.cache.alike(self.slots)

    def _bias(self, positions: Tensor, first: int) -> Tensor | None:
        """(B, Tn, S) to add to scores of queries at `positions` (B, Tn), `first` the lowest; None if all see all."""
        if first == self.keys - 1:
            return None
        # A padded query looks at what the row's last token sees; its result is dropped.
        hidden = torch.arange(self.keys) > positions.unsqueeze(2)
        # Of the queries' type: a kernel may read another type's bits as its own.
        zeros = torch.zeros(hidden.shape, dtype=self.cache.buffer.dtype)
        return zeros.masked_fill_(hidden, float("-inf")).to(self.cache.buffer.device)

    @property
    def last(self) -> Tensor:
        """(B,) flat index of each row's last token."""
        return (self._counts.cumsum(0) - 1).to(self.cache.buffer.device)

    def commit(self) -> None:
        """The new tokens are in: later spans start after them."""
        self.cache.lengths[self.slots] = self.after

    def store(self, layer: int, values: Tensor, window: int = 0) -> Iterator[ContextPart]:
        """Write (N, width) of one layer; returns the context of all rows, in parts that are attended to one after the other.

        Short contexts are one part, and if they are few a copy even of neighbouring slots: one long read brings them into the CPU's cache at several
        times the speed of attention's own strided reads (64 rows of 120 tokens: 0.40 ms instead of 0.58 ms). Of long ones the copy would cost more
        than attention itself; each row is a part then, a view of its slot that ends where the row ends and begins where its window does.
        """
        self.write_to(layer, values)
        return self._parts(layer, None, window, 0)

    def write_to(self, layer: int, values: Tensor) -> None:
        """Write (N, width) of one layer."""
        buffer = self.cache.buffer[layer]
        buffer.view(-1, buffer.shape[-1]).index_copy_(0, self.write, values)

    def behind(self, layer: int, shared: SharedRows) -> Iterator[ContextPart]:
        """After `write_to`: the context of these rows that follows what they share."""
        return self._parts(layer, shared.rows, 0, shared.length)

    def beginning(self, layer: int, shared: SharedRows) -> Tensor:
        """(1, s, width): what the cache holds of what these rows share."""
        slot = int(self.slots[shared.rows[0]])
        return self.cache.buffer[layer, slot : slot + 1, : shared.length]

    def _parts(self, layer: int, rows: Tensor | None, window: int, first: int) -> Iterator[ContextPart]:
        """The context of `rows`, by default of all, from position `first` on."""
        buffer = self.cache.buffer[layer]
        if (self.keys - first) * buffer.shape[-1] < LONG_CONTEXT:
            context, chosen = self._contexts(buffer, rows, first), slice(None) if rows is None else rows
            return iter([ContextPart(chosen, slice(first, self.keys), context, whole=False)])
        return (self._row(buffer, row, window, first) for row in (range(self.batch) if rows is None else rows.tolist()))

    def _contexts(self, buffer: Tensor, rows: Tensor | None, first: int) -> Tensor:
        """(b, s, width): a view of neighbouring slots whose contexts are large together, else a copy."""
        slots = self.slots if rows is None else self.slots[rows]
        if len(slots) * (self.keys - first) * buffer.shape[-1] >= READ_IN_PLACE:
            start, end = int(slots[0]), int(slots[0]) + len(slots)
            if slots.tolist() == list(range(start, end)):
                return buffer[start:end, first : self.keys]
        return buffer[:, first : self.keys].index_select(0, slots.to(buffer.device))

    def _row(self, buffer: Tensor, row: int, window: int, first: int) -> ContextPart:
        end, slot = int(self.after[row]), int(self.slots[row])
        start = max(first, int(self._before[row]) - window + 1) if window else first
        return ContextPart(slice(row, row + 1), slice(start, end), buffer[slot : slot + 1, start:end], whole=True)

    def to_rows(self, x: Tensor) -> Tensor:
        """(N, ...) to (B, Tn, ...), zeros where a row is shorter."""
        if self.ragged:
            rows = x.new_zeros(self.batch * self.width, *x.shape[1:])
            x = rows.index_copy_(0, self.valid, x)
        return x.view(self.batch, self.width, *x.shape[1:])

    def to_tokens(self, rows: Tensor) -> Tensor:
        """(B, Tn, ...) to (N, ...)."""
        flat = rows.reshape(-1, *rows.shape[2:])
        return flat.index_select(0, self.valid) if self.ragged else flat

    def bias_for(self, part: ContextPart, folded: int, window: int = 0) -> Tensor | None:
        """(b, 1, Tn * folded, s) to add to scores of a part, whose rows are `folded` heads per query; None if all is visible.

        `window` is the number of positions that a query sees, its own among them; 0: all before it.
        """
        if self.width == 1 and part.whole:
            return None  # the part holds what its only query sees
        if 0 < window < self.keys:
            bias = self._windowed(window)
        elif self.bias is None:
            return None
        else:
            bias, window = self.bias, 0
        if (folded, window) not in self._folded:
            wide = bias if self.width == 1 else bias.repeat_interleave(folded, dim=1)
            self._folded[folded, window] = wide.unsqueeze(1)
        return self._folded[folded, window][part.rows][..., part.keys]

    def _windowed(self, window: int) -> Tensor:
        """(B, Tn, S): also what lies further back than the window is hidden."""
        if window not in self._windows:
            hidden = torch.arange(self.keys) <= self._places.unsqueeze(2) - window  # (B, Tn, S)
            zeros = torch.zeros(hidden.shape, dtype=self.cache.buffer.dtype)
            bias = zeros.masked_fill_(hidden, float("-inf")).to(self.cache.buffer.device)
            self._windows[window] = bias if self.bias is None else bias + self.bias
        return self._windows[window]
