"""What decoding costs on this machine: tokens a second and core-seconds a thousand tokens, of several models in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from etude.agent.policy.protocol import Request
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
