"""What the formats of experts' products do to a policy and to its training: `python benchmarks/low_precision.py [--out FILE]`.

Three parts, all with the committed SFT checkpoint and emulated products (docs/low-precision.md), on one core:

- **Sampler against trainer.** An engine samples fixed prompts, eight at a time, and the forward of training scores the same tokens in one batch,
  with the engine's experts replayed and without. k3 as in `learn/engine/probe.py`. "nvfp4, one scale" has a scale of the whole tensor of tokens
  in place of one of each token, so what the trainer computes of a token depends on the rows that it is batched with.
- **A later token.** How much the logits of the first half of a row change when its second half does. Causal models have 0.
- **Learning.** 200 steps of AdamW on fixed batches of random rows that repeat, the same for all formats; mean loss of the last 20 steps.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import SampledTokens
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.formats.mxfp8 import round_to_mxfp8
from etude.learn.formats.nvfp4 import round_to_nvfp4
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.compute import multiply_experts
from etude.learn.model.expert_products import ProductRoundings, rounded_product
from etude.learn.model.experts import Experts
from etude.pipeline.run.machine import machine, versions

HERE = Path(__file__).parent
CHECKPOINT = HERE.parent / "checkpoints" / "sft-nano"
PROMPTS, PROMPT_TOKENS, SAMPLED_TOKENS, TOGETHER = 64, 48, 64, 8
STEPS, LAST, ROWS, LENGTH, BATCHES = 200, 20, 8, 96, 10
ONE_SCALE = "nvfp4, one scale"
FORMATS = ("plain", "mxfp8", "nvfp4", ONE_SCALE)
Sampled = list[tuple[tuple[int, ...], SampledTokens]]


def multiply(model: CausalLM, name: str) -> None:
    """From now on the model's experts multiply in this format."""
    if name != ONE_SCALE:
        return multiply_experts(model, name)  # type: ignore[arg-type]
    whole = partial(round_to_nvfp4, second="tensor")
    for module in model.modules():
        if isinstance(module, Experts):
            module.product = partial(rounded_product, how=ProductRoundings(whole, whole, round_to_mxfp8))


def sampled_by(name: str) -> Sampled:
    """The fixed prompts with what an engine samples after them."""
    model = load_checkpoint(CHECKPOINT)
    length = PROMPT_TOKENS + SAMPLED_TOKENS
    core = EngineCore(model, EngineSettings(max_slots=PROMPTS, max_batch=TOGETHER, max_len=length))
    multiply(model, name)
    draw = np.random.default_rng(0)
    prompts = [tuple(draw.integers(0, model.config.vocab_size, PROMPT_TOKENS).tolist()) for _ in range(PROMPTS)]
    asked = {
        core.submit(Request(f"{n}", (), prompt_ids=prompt, max_tokens=SAMPLED_TOKENS, seed=n)): prompt
        for n, prompt in enumerate(prompts)
    }
    found: Sampled = []
    while core.busy:
        for ticket, completion in core.step():
            assert completion.tokens is not None
            found.append((asked[ticket], completion.tokens))
    return found


@torch.inference_mode()
def gaps(model: CausalLM, sampled: Sampled, replay: bool) -> tuple[np.ndarray, float]:
    """Trainer's log-probability minus the engine's of every sampled token, and the share of expert choices that are equal."""
    rows = [list(prompt) + tokens.ids for prompt, tokens in sampled]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    layers, chosen = len(model.config.moe_layers), model.config.experts_per_token
    routes = torch.full((len(rows), width, layers, chosen), -1)
    for row, (_, tokens) in enumerate(sampled):
        assert tokens.routes is not None
        found = torch.from_numpy(tokens.routes.astype(np.int64))
        routes[row, tokens.route_start : tokens.route_start + len(found)] = found
    out = model(ids, forced_experts=routes if replay else None, return_routes=True)
    logprobs = out.logits.float().log_softmax(-1)
    differences = []
    for row, (prompt, tokens) in enumerate(sampled):
        at = torch.arange(len(prompt) - 1, len(prompt) - 1 + len(tokens.ids))
        forward = logprobs[row, at, torch.tensor(tokens.ids)].double().numpy()
        differences.append(forward - np.array(tokens.logprobs, dtype=np.float64))
    known = routes >= 0
    equal = (out.routes.long().sort(-1).values == routes.sort(-1).values)[known].float().mean()  # type: ignore[union-attr]
    return np.concatenate(differences), float(equal)


def against_trainer(engine: str, trainer: str) -> dict[str, Any]:
    """A row of the first table."""
    sampled, model = sampled_by(engine), load_checkpoint(CHECKPOINT).eval()
    multiply(model, trainer)
    found: dict[str, Any] = {"engine": engine, "trainer": trainer}
    for replay, name in ((True, "replay"), (False, "no_replay")):
        d, equal = gaps(model, sampled, replay)
        found |= {"tokens": len(d), f"k3_{name}": float(np.mean([math.expm1(x) - x for x in d])),
                  f"p99_{name}": float(np.quantile(np.abs(d), 0.99))}  # fmt: skip
        if not replay:
            found["equal_routes"] = equal
    return found


@torch.inference_mode()
def later_token(name: str) -> float:
    """The largest change of a logit in the first half of a row, in the standard deviation of logits, when the second half is another."""
    model = load_checkpoint(CHECKPOINT).eval()
    multiply(model, name)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (4, LENGTH), generator=draw)
    other, half = ids.clone(), LENGTH // 2
    other[:, half:] = torch.randint(0, model.config.vocab_size, (4, LENGTH - half), generator=draw)
    first, second = (model(each).logits[:, :half] for each in (ids, other))
    return float((first - second).abs().max() / first.std())


def learned(name: str) -> list[float]:
    """The losses of all steps."""
    torch.manual_seed(0)
    model = load_checkpoint(CHECKPOINT)
    multiply(model, name)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    draw = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, model.config.vocab_size, (ROWS, LENGTH), generator=draw) for _ in range(BATCHES)]
    return [_step(model, optimizer, batches[step % BATCHES]) for step in range(STEPS)]


def _step(model: CausalLM, optimizer: torch.optim.Optimizer, ids: Tensor) -> float:
    logits = model(ids).logits[:, :-1].flatten(0, 1)
    loss = F.cross_entropy(logits, ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "low_precision.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [*((name, name) for name in FORMATS), ("mxfp8", "plain"), ("nvfp4", "plain")]
    result: dict[str, Any] = {"machine": machine(), "versions": versions()}
    result["sampler"] = []
    for engine, trainer in pairs:
        result["sampler"].append(against_trainer(engine, trainer))
        print(json.dumps(result["sampler"][-1]), flush=True)
    result["later_token"] = {name: later_token(name) for name in FORMATS}
    print(json.dumps(result["later_token"]), flush=True)
    losses = {name: learned(name) for name in FORMATS}
    plain = float(np.mean(losses["plain"][-LAST:]))
    result["learning"] = [
        {"format": name, "first": found[0], "last": (mean := float(np.mean(found[-LAST:]))), "gap": mean / plain - 1}
        for name, found in losses.items()
    ]
    print(json.dumps(result["learning"]), flush=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
