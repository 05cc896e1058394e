"""Small models of both families, and an engine driven by hand."""

from __future__ import annotations

import torch

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion
from etude.learn.engine.core import EngineCore
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

VOCAB = 97


def small_model(family: str, seed: int = 0) -> CausalLM:
    settings = ModelSettings.model_validate(
        {
            "family": family,
            "hidden_size": 32,
            "layers": 3,
            "kv_lora_rank": 16,
            "nope_dim": 8,
            "rope_dim": 8,
            "v_dim": 8,
            "head_dim": 8,
            "dense_intermediate": 64,
            "moe_intermediate": 16,
            "max_positions": 256,
            "seed": seed,
            "init_head_std": 0.3,  # a spread-out distribution: a flat one would hide wrong logits
        }
    )
    return new_model(settings, VOCAB)


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def ask(session: str, ids: tuple[int, ...], **options: object) -> Request:
    options = {"max_tokens": 12, "seed": 1, **options}
    return Request(session, (), prompt_ids=ids, **options)  # type: ignore[arg-type]


def drain(core: EngineCore) -> dict[int, Completion]:
    """Completions by ticket, once everything is done."""
    done: dict[int, Completion] = {}
    while core.busy:
        done.update(core.step())
    return done


def answer(core: EngineCore, *requests: Request) -> list[Completion]:
    """Completions of requests submitted together."""
    tickets = [core.submit(request) for request in requests]
    done = drain(core)
    return [done[ticket] for ticket in tickets]
