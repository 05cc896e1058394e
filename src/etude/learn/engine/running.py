"""A request on its way through the engine, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion, Finish, SampledTokens, Usage
from etude.learn.engine.rows import MAX_TOP, TokenRows

# The smallest normal number of fp32, in which top-p is compared: below it 0 would be left, and no token would be kept.
LEAST_TOP_P = float(np.finfo(np.float32).tiny)


@dataclass
class RunningRequest:
    """A request from its submission on; `slot` and what follows are set when it gets one."""

    ticket: int
    request: Request
    seed: int
    submitted_s: float
    slot: int = -1
    cached: int = 0  # prompt tokens whose keys and values were in the slot already
    route_start: int = 0  # first position whose routes are this request's to report

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def new_tokens(self) -> int:
        return self.prompt_tokens - self.cached

    def completion(self, rows: TokenRows, length: int, finish: Finish, now_s: float, problem: str = "") -> Completion:
        """What was sampled so far; `length` tokens of the slot were forwarded (all but the last sampled)."""
        base = rows.place(self.slot)
        sampled = rows.sampled(self.slot, self.prompt_tokens, length + 1)
        routes = None
        if rows.routes.shape[1]:
            routes = rows.routes[base + self.route_start : base + length].numpy().copy()
            routes = routes if routes.dtype == np.uint8 else routes.astype(np.uint16)
        tokens = replace(sampled, routes=routes, route_start=self.route_start)
        usage = Usage(self.prompt_tokens, self.cached, len(tokens.ids), now_s - self.submitted_s)
        return Completion(tokens=tokens, finish=finish, usage=usage, problem=problem)

    def nothing(self, now_s: float) -> Completion:
        """The completion of a request that never got a slot."""
        usage = Usage(self.prompt_tokens, 0, 0, now_s - self.submitted_s)
        return Completion(tokens=SampledTokens([], [], []), finish="abort", usage=usage)


def check(request: Request, vocab_size: int, max_len: int, *, drafts: bool = False) -> None:
    """Raises PolicyError (the request's fault) if the engine cannot serve this. `drafts`: it decodes with draft layers."""

    def refuse(why: str) -> None:
        raise PolicyError(f"session {request.session_id}: {why}", infra=False)

    if not request.prompt_ids:
        refuse("the prompt is empty; a token policy needs prompt_ids")
    if len(request.prompt_ids) >= max_len:
        refuse(
            f"the prompt has {len(request.prompt_ids)} tokens, the engine holds {max_len}: shorten it or raise max_len"
        )
    if request.max_tokens < 1:
        refuse(f"max_tokens is {request.max_tokens}; ask for at least 1")
    if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= vocab_size:
        refuse(f"a prompt id lies outside the vocabulary of {vocab_size}; was another tokenizer used?")
    if not request.temperature >= 0:
        refuse(f"temperature is {request.temperature}; it must be 0 (greedy) or more")
    if not LEAST_TOP_P <= request.extra.get("top_p", 1.0) <= 1:
        refuse(f"top_p is {request.extra['top_p']}; it must lie between {LEAST_TOP_P:.3g} and 1")
    if not 0 <= (top := request.extra.get("top_logprobs", 0)) <= MAX_TOP:
        refuse(f"top_logprobs is {top}; it must lie in 0 to {MAX_TOP}")
    if top and drafts:
        refuse("top_logprobs with draft layers is not supported; set engine.draft_tokens to 0")
