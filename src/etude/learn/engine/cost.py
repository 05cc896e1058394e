"""What decoding costs on this machine, and greedy answers to many prompts.

Costs are tokens per second and core-seconds per thousand tokens, of several models measured in turns. The comparison of base models uses both.
A rule per prompt ends a greedy answer. It looks at the tokens every few tokens: a closing fence is several tokens in most vocabularies, so it is no
stop id. A session stays in its slot, so the next piece costs one token of prompt.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig

FLOAT_BYTES = 4  # the engine's cache is fp32


@dataclass(frozen=True)
class DecodeCost:
    """Medians over the rounds, of decode steps alone (the prompt's are prefill)."""

    tokens_per_s: float
    core_s_per_1000_tokens: float


def cache_bytes_per_token(config: ModelConfig) -> int:
    """What one token holds in the engine's cache, all layers together."""
    return config.layers * config.cache_width * FLOAT_BYTES


def decode_costs(
    models: Sequence[CausalLM], batch: int, *, prompt_tokens: int, new_tokens: int, rounds: int, warmups: int = 1
) -> list[DecodeCost]:
    """One cost a model. They take turns, so that a slow moment of the machine hits all alike; the first rounds are not counted."""
    walls: list[list[float]] = [[] for _ in models]
    cores: list[list[float]] = [[] for _ in models]
    tokens = batch * (new_tokens - 1)  # the first comes from the prefill
    for number in range(warmups + rounds):
        for n, model in enumerate(models):
            wall = _decode_s(model, batch, prompt_tokens, new_tokens, time.perf_counter)
            core = _decode_s(model, batch, prompt_tokens, new_tokens, time.process_time)  # of all threads
            if number >= warmups:
                walls[n].append(tokens / wall)
                cores[n].append(1000 * core / tokens)
    return [
        DecodeCost(statistics.median(speeds), statistics.median(costs))
        for speeds, costs in zip(walls, cores, strict=True)
    ]


def _decode_s(model: CausalLM, batch: int, prompt_tokens: int, new_tokens: int, clock: Callable[[], float]) -> float:
    """Seconds that the engine spends in decode steps, by `clock`."""
    settings = EngineSettings(max_slots=batch, max_batch=batch, max_len=prompt_tokens + new_tokens, share_prefix=False)  # pyright: ignore[reportCallIssue]
    core = EngineCore(model, settings, clock=clock)
    generator = torch.Generator().manual_seed(0)
    for n in range(batch):
        ids = torch.randint(model.config.vocab_size, (prompt_tokens,), generator=generator).tolist()
        core.submit(Request(str(n), (), prompt_ids=tuple(ids), max_tokens=new_tokens, seed=n))
    while core.busy:
        core.step()
    return core.stats.decode_s


AT_ONCE = 32  # tokens between two looks at an answer: half of them on average are for nothing

Over = Callable[[int, list[int]], bool]  # (prompt number, its tokens so far) -> enough


def greedy(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    most_tokens: Sequence[int],
    over: Over,
    *,
    batch: int = 8,
    done: Callable[[int], None] = lambda count: None,
) -> list[list[int]]:
    """The likeliest next tokens of each prompt, until `over` or as many as `most_tokens` says. `done` hears how many are finished.

    Raises PolicyError for a prompt that with its answer is longer than the model's positions, or one that the model gives no finite logits for.
    """
    if not prompts:
        return []
    longest = max(len(prompt) + most for prompt, most in zip(prompts, most_tokens, strict=True))
    core = EngineCore(model, EngineSettings(max_slots=batch, max_batch=batch, max_len=longest, share_prefix=False))  # pyright: ignore[reportCallIssue]
    answers: list[list[int]] = [[] for _ in prompts]
    waiting, tickets, finished = list(reversed(range(len(prompts)))), {}, 0

    def ask(n: int) -> None:
        ids = tuple((*prompts[n], *answers[n]))
        count = min(AT_ONCE, most_tokens[n] - len(answers[n]))
        tickets[core.submit(Request(str(n), (), prompt_ids=ids, max_tokens=count, temperature=0.0))] = n

    while waiting or tickets:
        while waiting and len(tickets) < batch:
            ask(waiting.pop())
        for ticket, completion in core.step():
            n = tickets.pop(ticket)
            answers[n] += _ids(completion)
            if len(answers[n]) < most_tokens[n] and not over(n, answers[n]):
                ask(n)
                continue
            core.release(str(n))
            finished += 1
            done(finished)
    return answers


def _ids(completion: Completion) -> list[int]:
    """Raises PolicyError where the engine gave the request up."""
    assert completion.tokens is not None
    if completion.finish == "abort":
        raise PolicyError(completion.problem)
    return completion.tokens.ids
