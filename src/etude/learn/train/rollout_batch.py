"""Rollouts into micro-batches: the segments of whole groups as one tree of tokens, each sampled token with its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from etude.core.trace.segment import Rollout, Segment, no_route, wide_routes
from etude.learn.model.mask import DocumentMask
from etude.learn.train.balance import Row, rows_to_train
from etude.learn.train.shared_prefix import TokenTree, TreeMask, common_prefix

# Tokens that two rows begin with alike from which they count once: the tools of a large model's preset, not the laptop's prompts.
LONG_PREFIX = 256


@dataclass(frozen=True)
class RolloutBatch:
    """N nodes of the token tree; M sampled tokens, in the order of segments and then of time. Where ranks share a tree, the nodes and sampled tokens
    of one of them."""

    ids: Tensor  # (1, N) int64
    mask: DocumentMask
    routes: Tensor | None  # (1, N, L_moe, K) uint8 or int32, as `wide_routes` has them
    parents: Tensor  # (M,) int64, the node that predicts the token
    targets: Tensor  # (M,) int64, the token's id
    owner: Tensor  # (M,) int64, index of the rollout
    sampler_logprobs: Tensor  # (M,) float32
    idle: bool = False  # a token that counts nothing, for a rank that takes part in the exchanges of others
    places: Tensor | None = (
        None  # (M,) int64, of a shared tree: the place of each among the sampled tokens of all ranks
    )
    shared: int = 0  # how many these are

    def to(self, device: torch.device) -> RolloutBatch:
        """The same there; itself where it is there already."""
        if self.ids.device == device:
            return self
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, mask=self.mask.to(device), **tensors)


def rollout_batches(
    rollouts: Sequence[Rollout], batch_tokens: int, rows: Sequence[Row] | None = None
) -> list[RolloutBatch]:
    """These rows (by default all with a sampled token), in their order. A batch holds about `batch_tokens` tokens before sharing; a long beginning
    that a row has in common with the first one is not counted."""
    batches: list[RolloutBatch] = []
    held: list[Row] = []
    tokens = 0
    for row in rows_to_train(rollouts) if rows is None else rows:
        if held and tokens + _tokens(rollouts, row, held) > batch_tokens:
            batches.append(_batch(rollouts, held))
            held, tokens = [], 0
        tokens += _tokens(rollouts, row, held)
        held.append(row)
    return [*batches, _batch(rollouts, held)] if held else batches


def empty_batch() -> RolloutBatch:
    """A token that predicts nothing: what a rank computes while others have tokens, where all take part in every exchange."""
    tree, none = TokenTree([np.zeros(1, np.int64)], [None]), torch.zeros(0, dtype=torch.int64)
    ids = torch.zeros(1, 1, dtype=torch.int64)
    return RolloutBatch(ids, TreeMask(tree), None, none, none, none, torch.zeros(0), idle=True)


def _tokens(rollouts: Sequence[Rollout], row: Row, held: list[Row]) -> int:
    """Of a row that is added to those held."""
    ids = rollouts[row[0]].segments[row[1]].ids
    shared = common_prefix(rollouts[held[0][0]].segments[held[0][1]].ids, ids) if held else 0
    return len(ids) - (shared if shared >= LONG_PREFIX else 0)


def _batch(rollouts: Sequence[Rollout], rows: list[Row]) -> RolloutBatch:
    segments = [rollouts[r].segments[s] for r, s in rows]
    tree = TokenTree([s.ids for s in segments], [s.routes for s in segments])
    # A sampled first token has no context to be predicted from; chats always begin with a prompt.
    places = [np.flatnonzero(segment.sampled[1:]) + 1 for segment in segments]
    counts = [len(place) for place in places]

    def gather(arrays: list[np.ndarray], dtype: type) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(dtype))

    return RolloutBatch(
        ids=torch.from_numpy(tree.ids)[None],
        mask=TreeMask(tree),
        routes=_routes(segments, tree),
        parents=gather([row[place - 1] for row, place in zip(tree.rows, places, strict=True)], np.int64),
        targets=gather([s.ids[place] for s, place in zip(segments, places, strict=True)], np.int64),
        owner=torch.from_numpy(np.repeat([r for r, _ in rows], counts)),
        sampler_logprobs=gather([s.logprobs[place] for s, place in zip(segments, places, strict=True)], np.float32),
    )


def _routes(segments: list[Segment], tree: TokenTree) -> Tensor | None:
    given = next((s.routes for s in segments if s.routes is not None), None)
    if given is None:
        return None
    routes = np.full((len(tree.ids), *given.shape[1:]), no_route(given.dtype), given.dtype)
    for segment, row in zip(segments, tree.rows, strict=True):
        if segment.routes is not None:
            routes[row] = segment.routes
    return torch.from_numpy(wide_routes(routes))[None]


def by_segment(rollouts: Sequence[Rollout], rows: Sequence[Row], values: Tensor) -> list[list[np.ndarray]]:
    """Values (M,) of the rows' sampled tokens -> [rollout][segment] arrays (T,) float32, 0 where not sampled."""
    out = [[np.zeros(len(segment), np.float32) for segment in rollout.segments] for rollout in rollouts]
    marks = [rollouts[r].segments[s].sampled[1:] for r, s in rows]
    for (r, s), at, part in zip(rows, marks, values.split([int(at.sum()) for at in marks]), strict=True):
        out[r][s][1:][at] = part.numpy()
    return out


def sampler_logprobs(rollouts: Sequence[Rollout], rows: Sequence[Row]) -> Tensor:
    """(M,) float32 of the rows' sampled tokens."""
    parts = [rollouts[r].segments[s].logprobs[1:][rollouts[r].segments[s].sampled[1:]] for r, s in rows]
    return torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *parts]))
