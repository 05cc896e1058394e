"""Rollouts into micro-batches: the segments of whole groups as one tree of tokens, each sampled token with its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from etude.trace.segment import NO_ROUTE, Rollout, Segment
from etude.train.shared_prefix import TokenTree, TreeMask


@dataclass(frozen=True)
class RolloutBatch:
    """N nodes of the token tree; M sampled tokens, in the order of segments and then of time."""

    rows: list[tuple[int, int]]  # (rollout, segment) of each row of the tree
    ids: Tensor  # (1, N) int64
    mask: TreeMask
    routes: Tensor | None  # (1, N, L_moe, K), NO_ROUTE where the engine gave none
    parents: Tensor  # (M,) int64, the node that predicts the token
    targets: Tensor  # (M,) int64, the token's id
    owner: Tensor  # (M,) int64, index of the rollout
    sampler_logprobs: Tensor  # (M,) float32
    counts: list[int]  # sampled tokens of each row, adding up to M


def rollout_batches(rollouts: Sequence[Rollout], batch_tokens: int) -> list[RolloutBatch]:
    """All segments with a sampled token. A batch holds about `batch_tokens` tokens before sharing; order is fixed.

    Rollouts of one group stay neighbours, because they share their beginnings.
    """
    rows = [
        (r, s)
        for r in sorted(range(len(rollouts)), key=lambda r: rollouts[r].group)
        for s, segment in enumerate(rollouts[r].segments)
        if segment.sampled[1:].any()
    ]
    batches: list[RolloutBatch] = []
    held: list[tuple[int, int]] = []
    tokens = 0
    for row in rows:
        length = len(rollouts[row[0]].segments[row[1]])
        if held and tokens + length > batch_tokens:
            batches.append(_batch(rollouts, held))
            held, tokens = [], 0
        held.append(row)
        tokens += length
    return [*batches, _batch(rollouts, held)] if held else batches


def _batch(rollouts: Sequence[Rollout], rows: list[tuple[int, int]]) -> RolloutBatch:
    segments = [rollouts[r].segments[s] for r, s in rows]
    tree = TokenTree([s.ids for s in segments], [s.routes for s in segments])
    # A sampled first token has no context to be predicted from; chats always begin with a prompt.
    places = [np.flatnonzero(segment.sampled[1:]) + 1 for segment in segments]
    counts = [len(place) for place in places]

    def gather(arrays: list[np.ndarray], dtype: type) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(dtype))

    return RolloutBatch(
        rows=rows,
        ids=torch.from_numpy(tree.ids)[None],
        mask=TreeMask(tree),
        routes=_routes(segments, tree),
        parents=gather([row[place - 1] for row, place in zip(tree.rows, places, strict=True)], np.int64),
        targets=gather([s.ids[place] for s, place in zip(segments, places, strict=True)], np.int64),
        owner=torch.from_numpy(np.repeat([r for r, _ in rows], counts)),
        sampler_logprobs=gather([s.logprobs[place] for s, place in zip(segments, places, strict=True)], np.float32),
        counts=counts,
    )


def _routes(segments: list[Segment], tree: TokenTree) -> Tensor | None:
    given = next((s.routes for s in segments if s.routes is not None), None)
    if given is None:
        return None
    routes = np.full((len(tree.ids), *given.shape[1:]), NO_ROUTE, given.dtype)
    for segment, row in zip(segments, tree.rows, strict=True):
        if segment.routes is not None:
            routes[row] = segment.routes
    return torch.from_numpy(routes)[None]


def by_segment(
    rollouts: Sequence[Rollout], batches: list[RolloutBatch], values: list[Tensor]
) -> list[list[np.ndarray]]:
    """Values (M,) a batch -> [rollout][segment] arrays (T,) float32, 0 where not sampled."""
    out = [[np.zeros(len(segment), np.float32) for segment in rollout.segments] for rollout in rollouts]
    for batch, flat in zip(batches, values, strict=True):
        for (r, s), part in zip(batch.rows, flat.split(batch.counts), strict=True):
            out[r][s][1:][rollouts[r].segments[s].sampled[1:]] = part.numpy()
    return out
