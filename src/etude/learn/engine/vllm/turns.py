"""Turns on their way to vLLM and back: a request as a message, an answer as a completion with the version of every token (promise 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion, Finish, SampledTokens, Usage
from etude.learn.engine.sampling import NOT_FINITE

Message = dict[str, Any]
FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "abort": "abort"}
SEEDS = 2**63  # vLLM takes signed ones of 64 bits


@dataclass(frozen=True)
class RunningTurn:
    """A request that vLLM is at. `version`: what was served when it was sent."""

    client: str
    number: int
    prompt_tokens: int
    version: int
    sent_s: float


def seed_of(seed: int, prompt_tokens: int) -> int:
    """vLLM begins a request's random numbers with its seed alone; as in our engine, turns of a session draw different ones."""
    key = np.array([seed % 2**64, prompt_tokens], dtype=np.uint64)
    return int(np.random.Philox(key=key).random_raw() % SEEDS)


def question(number: int, request: Request, seed: int, salt: str, max_len: int) -> Message:
    """What vLLM is asked. A turn ends at `max_len` tokens in all, as in our engine."""
    room = max_len - len(request.prompt_ids)
    return {
        "do": "ask",
        "n": number,
        "prompt": list(request.prompt_ids),
        "stop": list(request.stop_ids),
        "max_tokens": min(request.max_tokens, room),
        "temperature": request.temperature,
        "top_p": request.extra.get("top_p", 1.0),
        "seed": seed_of(seed, len(request.prompt_ids)),
        "salt": salt,
    }


def versions_of(spans: Sequence[tuple[int, int]], count: int, oldest: int) -> list[int]:
    """The version of each of `count` tokens, from spans (version, first token) in order. Tokens that no span covers get `oldest`."""
    versions = [oldest] * count
    for version, start in spans:
        versions[start:] = [version] * max(0, count - start)
    return versions


def completion(turn: RunningTurn, answer: Message, now_s: float) -> Completion | PolicyError:
    """What was sampled; an error of ours where vLLM ended the turn for a reason that none of our own is."""
    if answer["finish"] not in FINISHES:
        return PolicyError(f"vLLM ended a turn with {answer['finish']!r}")
    if not all(map(math.isfinite, answer["logprobs"])):
        return PolicyError(
            f"vLLM gave a token of logprob {next(x for x in answer['logprobs'] if not math.isfinite(x))}: {NOT_FINITE}"
        )
    ids = answer["ids"]
    versions = versions_of(answer["spans"], len(ids), turn.version)
    usage = Usage(turn.prompt_tokens, answer["cached"], len(ids), now_s - turn.sent_s)
    return Completion(
        tokens=SampledTokens(ids, answer["logprobs"], versions), finish=FINISHES[answer["finish"]], usage=usage
    )
