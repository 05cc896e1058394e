"""Rollouts into micro-batches: every segment is a row, rows of like length go together, and each row knows its rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from etude.corpus.packing import bucket_by_length
from etude.trace.segment import NO_ROUTE, Rollout, Segment
from etude.train.batch import Batch, pad_rows, padded_batch


@dataclass(frozen=True)
class Row:
    """Where a segment came from: `rollouts[rollout].segments[segment]`."""

    rollout: int
    segment: int


@dataclass(frozen=True)
class RolloutBatch:
    """N is the number of sampled tokens, in row-major order of the batch."""

    rows: list[Row]
    batch: Batch  # weights are 1 at sampled tokens
    routes: Tensor | None  # (B, T, L_moe, K) uint8, NO_ROUTE where the engine gave none
    owner: Tensor  # (N,) int64, index of the rollout
    sampler_logprobs: Tensor  # (N,) float32

    def split(self, values: Tensor) -> list[np.ndarray]:
        """Values (N,) of sampled tokens back to one (T_i,) array a row, 0 elsewhere; T_i as in the padded batch."""
        full = torch.zeros(self.batch.weights.shape)
        full[self.batch.weights > 0] = values.float()
        return [row.numpy() for row in full]


def rollout_batches(rollouts: Sequence[Rollout], batch_tokens: int) -> list[RolloutBatch]:
    """All segments with a sampled token, in micro-batches of at most `batch_tokens` padded tokens; order is fixed."""
    rows = [
        Row(r, s)
        for r, rollout in enumerate(rollouts)
        for s, segment in enumerate(rollout.segments)
        if segment.sampled[1:].any()
    ]
    lengths = np.array([len(_segment(rollouts, row)) for row in rows], np.int64)
    buckets = bucket_by_length(lengths, batch_tokens, seed=0, epoch=0)
    return [_batch(rollouts, [rows[i] for i in bucket]) for bucket in buckets]


def _segment(rollouts: Sequence[Rollout], row: Row) -> Segment:
    return rollouts[row.rollout].segments[row.segment]


def _batch(rollouts: Sequence[Rollout], rows: list[Row]) -> RolloutBatch:
    segments = [_segment(rollouts, row) for row in rows]
    # A sampled first token has no context to be predicted from; chats always begin with a prompt.
    sampled = [np.concatenate(([False], segment.sampled[1:])) for segment in segments]
    counts = [int(mask.sum()) for mask in sampled]
    logprobs = np.concatenate([s.logprobs[mask] for s, mask in zip(segments, sampled, strict=True)])
    return RolloutBatch(
        rows=rows,
        batch=padded_batch([s.ids for s in segments], [mask.astype(np.float32) for mask in sampled]),
        routes=_routes(segments),
        owner=torch.from_numpy(np.repeat([row.rollout for row in rows], counts)),
        sampler_logprobs=torch.from_numpy(logprobs.astype(np.float32)),
    )


def _routes(segments: list[Segment]) -> Tensor | None:
    given = [segment.routes for segment in segments if segment.routes is not None]
    if not given:
        return None
    shape, dtype = given[0].shape[1:], given[0].dtype
    rows = [
        s.routes if s.routes is not None else np.full((len(s), *shape), NO_ROUTE, dtype) for s in segments
    ]  # fmt: skip
    return torch.from_numpy(pad_rows(rows, fill=NO_ROUTE))
