"""The fixed probe behind `rl.mismatch`: what the engine reports against the plain forward of the learner (promise 3).

A fixed set of prompts is sampled under one version; the same tokens then go through `model.forward` in one batch, without
cache and without replayed routes. k3 = exp(d) - 1 - d with d = forward logprob - engine logprob (Schulman's estimator).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import SampledTokens
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.causal_lm import CausalLM

# In fp32 on one machine the two differ by the order of sums alone.
MAX_MEAN_K3 = 1e-9
MAX_P99 = 1e-5
# An engine of other code, by the wider of the two types that it and the trainer compute in: the largest mean k3. Under the same weights vLLM's is
# 1e-12 in fp32 (some choices of an expert may differ) and 1e-3 in bf16; positions or attention that are computed in another way give 0.1 and more.
MAX_OUTSIDE_K3 = {"fp32": 1e-5, "bf16": 2e-2}

PROMPTS, PROMPT_TOKENS, SAMPLED_TOKENS = 16, 24, 48  # 768 sampled tokens: enough for a 99th percentile, 1 s of one core


@dataclass(frozen=True)
class ProbeMismatch:
    """How far engine and forward are apart over `tokens` sampled tokens and `routes` expert choices."""

    mean_k3: float
    p99_dlogp: float
    max_dlogp: float
    routes_equal: bool
    tokens: int
    routes: int

    @property
    def within_bar(self) -> bool:
        return self.mean_k3 <= MAX_MEAN_K3 and self.p99_dlogp <= MAX_P99 and self.routes_equal


def probe_prompts(vocab_size: int, seed: int = 0) -> list[tuple[int, ...]]:
    """The fixed prompts: uniform ids, so that they need no tokenizer and reach every expert; unequal lengths."""
    draw = np.random.default_rng(seed)
    lengths = [PROMPT_TOKENS // 2 + n % PROMPT_TOKENS for n in range(PROMPTS)]
    return [tuple(draw.integers(0, vocab_size, length).tolist()) for length in lengths]


class EngineMismatch(ValueError):
    """An engine samples from another distribution than the trainer computes."""


def require_same_distribution(found: ProbeMismatch, name: str, compute: str) -> None:
    """Raises EngineMismatch where the mean k3 of engine `name` is above the bound of `compute` ("fp32" or "bf16"), or is no number."""
    bound = MAX_OUTSIDE_K3[compute]
    if not found.mean_k3 <= bound:
        raise EngineMismatch(
            f"{name} samples from another distribution than the trainer computes: mean k3 {found.mean_k3:.3g} over {found.tokens} tokens of the "
            f"probe, at most {bound:g} in {compute}; nothing was trained. Take out what engine.vllm.arguments changes in the model, try another "
            'version of vLLM, or set engine.kind = "etude"'
        )


def probe(model: CausalLM, seed: int = 0) -> ProbeMismatch:
    """Samples the probe from `model` with an engine of its own and recomputes it with `model.forward`."""
    length = min(2 * PROMPT_TOKENS + SAMPLED_TOKENS, model.config.context_length)
    was_training = model.training
    core = EngineCore(model, EngineSettings(max_slots=PROMPTS, max_batch=PROMPTS, max_len=length))
    result = compare(model, sample_probe(core, seed))
    model.train(was_training)
    return result


def sample_probe(core: EngineCore, seed: int = 0) -> list[tuple[tuple[int, ...], SampledTokens]]:
    """The fixed prompts with what an engine samples after them."""
    asked = {
        core.submit(Request(f"probe-{n}", (), prompt_ids=prompt, max_tokens=SAMPLED_TOKENS, seed=seed + n)): prompt
        for n, prompt in enumerate(probe_prompts(core.model.config.vocab_size, seed))
    }
    sampled: list[tuple[tuple[int, ...], SampledTokens]] = []
    while core.busy:
        for ticket, completion in core.step():
            assert completion.tokens is not None
            sampled.append((asked[ticket], completion.tokens))
    return sampled


@torch.inference_mode()
def compare(model: CausalLM, sampled: list[tuple[tuple[int, ...], SampledTokens]]) -> ProbeMismatch:
    """Prompts with what an engine sampled after them, at temperature 1, against the plain forward."""
    rows = [list(prompt) + tokens.ids for prompt, tokens in sampled]
    width = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.embed.weight.device)  # (B, T)
    output = model(ids, return_routes=True)
    logprobs = output.logits.float().log_softmax(-1).cpu()  # (B, T, V)
    routes = None if output.routes is None else output.routes.cpu().numpy()  # (B, T, L_moe, K)
    differences: list[np.ndarray] = []
    equal, choices = True, 0
    for row, (prompt, tokens) in enumerate(sampled):
        at = torch.arange(len(prompt) - 1, len(prompt) - 1 + len(tokens.ids))
        forward = logprobs[row, at, torch.tensor(tokens.ids)].double().numpy()
        differences.append(forward - np.array(tokens.logprobs, dtype=np.float64))
        if tokens.routes is not None and routes is not None:
            own = routes[row, tokens.route_start : tokens.route_start + len(tokens.routes)]
            equal &= bool((np.sort(own, -1) == np.sort(tokens.routes, -1)).all())
            choices += tokens.routes.size
    d = np.concatenate(differences)
    k3 = np.array([math.expm1(x) - x for x in d])
    size = np.abs(d)
    return ProbeMismatch(float(k3.mean()), float(np.quantile(size, 0.99)), float(size.max()), equal, len(d), choices)
