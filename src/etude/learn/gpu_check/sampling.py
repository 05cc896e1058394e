"""Decoding and new weights in our engine, and the back ends of a layer of experts.

The engine's own statistics say how long it decoded and computed prompts, so that what submits requests does not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from etude.agent.policy.protocol import Request
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.gpu_check.measuring import FAMILIES, VOCABULARY, Clock, Scale
from etude.learn.model.config import ModelConfig
from etude.learn.model.experts import BACK_ENDS, Experts, run_experts

PROMPT = 256  # tokens of a session
ROUNDS = 4  # the first one warms up
TOKENS = (1, 64, 1024)


def decoding(scale: Scale) -> dict[str, Any]:
    """Tokens a second by family and number of sessions, and those of their prompts; milliseconds of taking new weights."""
    found: dict[str, Any] = {}
    clock = Clock(scale.device)
    for family in FAMILIES:
        model = scale.model(family)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for sessions in scale.sessions:
            settings = EngineSettings(max_len=512, max_slots=sessions, max_batch=sessions, share_prefix=False)
            settings = settings.model_copy(update={"device": scale.device})
            core = EngineCore(model, settings, clock=clock.now)
            rounds = [_decoded(core, sessions, scale.drawn, turn) for turn in range(ROUNDS)][1:]
            decoded, prefilled = (statistics.median(rates) for rates in zip(*rounds, strict=True))
            row = {"tokens_per_s": decoded, "prefill_tokens_per_s": prefilled}
            found[f"{family}, {sessions} sessions"] = row
        began = clock.now()
        core.swap(state, 1)
        core.step()
        found[f"{family}, new weights"] = {"milliseconds": 1e3 * (clock.now() - began)}
    return found


def _decoded(core: EngineCore, sessions: int, new: int, turn: int) -> tuple[float, float]:
    """Tokens a second of one round of `new` tokens each, and of its prompts, to which the first new one belongs."""
    before = core.stats.decode_s, core.stats.prefill_s
    drawn = torch.Generator().manual_seed(turn)
    for number, row in enumerate(torch.randint(32, VOCABULARY, (sessions, PROMPT), generator=drawn).tolist()):
        core.submit(Request(f"{turn}-{number}", (), prompt_ids=tuple(row), max_tokens=new, seed=number))
    while core.busy:
        core.step()
    decode_s, prefill_s = core.stats.decode_s - before[0], core.stats.prefill_s - before[1]
    return sessions * (new - 1) / decode_s, sessions * PROMPT / prefill_s


def experts(scale: Scale) -> dict[str, Any]:
    """Milliseconds of one layer of experts, forward alone, by back end and number of tokens."""
    clock = Clock(scale.device)
    config = scale.model("qwen3_moe").config
    layer = Experts(config).to(scale.device)
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.02)
    found: dict[str, Any] = {}
    for tokens in TOKENS:
        works = {name: _layer(layer, config, tokens, scale.device, name) for name in BACK_ENDS}
        with torch.inference_mode():
            seconds = clock.medians(works)
        found[f"{tokens} tokens"] = {name: 1e3 * each for name, each in seconds.items()}
    return found


def _layer(layer: Experts, config: ModelConfig, tokens: int, device: str, name: str) -> Callable[[], Tensor]:
    """The layer by one back end over random tokens that choose random experts."""
    x = torch.randn(tokens, config.hidden_size, device=device)
    chosen = torch.rand(tokens, config.experts, device=device).topk(config.experts_per_token).indices
    weights = torch.rand(tokens, config.experts_per_token, device=device)
    return partial(run_experts, x, layer.weights, chosen, weights, name)
