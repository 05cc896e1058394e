"""What a policy gave back for one turn, with the provenance of every sampled token (promise 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from etude.core.trace.message import Message

Finish = Literal["stop", "length", "abort"]


@dataclass(frozen=True)
class SampledTokens:
    """The tokens of one completion. All lists have one entry per sampled token, in order.

    `routes[i, l, j]` is the j-th expert that MoE layer l chose for the token at absolute position `route_start + i` of
    prompt + completion. It covers every position that was forwarded for this completion: the prompt positions that were
    not cached, and all sampled tokens but the last (which is forwarded only if a later turn continues from it).
    """

    ids: list[int]
    logprobs: list[float]  # natural log, under the distribution that was sampled from (temperature applied)
    versions: list[int]  # policy version of the weights that produced each token
    routes: np.ndarray | None = None  # (N, L_moe, K) uint8 or uint16
    route_start: int = 0
    # For each token the likeliest ids with their logprobs, most likely first; None unless the request asks for them.
    top: list[list[tuple[int, float]]] | None = None


@dataclass(frozen=True)
class Usage:
    """What the turn cost, in tokens and seconds. Tokens read from and written to a cache are part of `input_tokens`."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    cache_write_tokens: int = 0


@dataclass(frozen=True)
class Completion:
    """One answer. Token policies fill `tokens` (the harness parses the message); text policies fill `message`, and both where their server
    returns tokens."""

    message: Message | None = None
    tokens: SampledTokens | None = None
    finish: Finish = "stop"
    usage: Usage = field(default_factory=Usage)
    problem: str = ""  # why it was aborted, where the engine knows
    # The prompt's ids, where the policy was sent messages, rendered them itself and says as what; then `tokens` is set, too.
    prompt_ids: tuple[int, ...] = ()
