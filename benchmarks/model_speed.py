"""How fast the model learns and samples on one thread, compared with transformers with the same weights in the same run.

    python benchmarks/model_speed.py              # both families, decode and train step, under a minute on a free core
    python benchmarks/model_speed.py --experts    # the expert back ends by number of tokens
    python benchmarks/model_speed.py --decoding   # a decoding step of SmolLM2's shapes: padded rows, copied and read contexts

Time is the CPU time of the one thread, best of a few repeats: equal to wall time on a free core, and hardly moved by other
load (which still takes cache and memory bandwidth).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model import cache as cache_module
from etude.learn.model import linear as linear_module
from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.experts import BACK_ENDS, Experts, run_experts
from etude.learn.model.init import new_model
from etude.learn.model.mask import DocumentMask
from etude.learn.model.settings import ModelSettings

VOCABULARY = 1024
PROMPT_TOKENS, NEW_TOKENS = 96, 32  # an exercise session's middle
BATCHES = (1, 8, 32, 64)
PREFIX_TOKENS = 1504  # of four tools of the preset search_replace and its prompt in SmolLM2's chat format
TRAIN_ROWS, TRAIN_LENGTH = 16, 128


def best_s(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """CPU seconds of the fastest of `repeats` calls of each, in turns, so that a slow moment hits all alike."""
    for run in runs.values():
        run()
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def generate(model: CausalLM, cache: KVCache, ids: Tensor, new_tokens: int) -> None:
    """Greedy decoding as plain as it can be."""
    cache.lengths.zero_()
    slots = torch.arange(len(ids))
    ones = torch.ones_like(slots)
    logits, _ = model.extend(ids, ones * ids.shape[1], slots, cache)
    for _ in range(new_tokens - 1):
        logits, _ = model.extend(logits.argmax(-1, keepdim=True), ones, slots, cache)


def decode_rates(model: CausalLM, peer: nn.Module, batch: int) -> dict[str, float]:
    """Tokens per second of decoding alone: the time of 1 + NEW_TOKENS tokens less that of the first."""
    ids = torch.randint(0, VOCABULARY, (batch, PROMPT_TOKENS))
    cache = KVCache(model.config, slots=batch, max_len=PROMPT_TOKENS + NEW_TOKENS + 1)
    seen = torch.ones_like(ids)

    def theirs(count: int) -> Callable[[], object]:
        return lambda: peer.generate(  # type: ignore[operator]
            ids, attention_mask=seen, max_new_tokens=count, min_new_tokens=count, do_sample=False
        )

    def ours(count: int) -> Callable[[], object]:
        return lambda: generate(model, cache, ids, count)

    runs: dict[str, Callable[[], object]] = {
        "etude": ours(1 + NEW_TOKENS),
        "etude 1": ours(1),
        "transformers": theirs(1 + NEW_TOKENS),
        "transformers 1": theirs(1),
    }
    seconds = best_s(runs, repeats=4)
    rates = {name: batch * NEW_TOKENS / (seconds[name] - seconds[name + " 1"]) for name in ("etude", "transformers")}
    return rates | {"etude_prefill": batch * PROMPT_TOKENS / seconds["etude 1"]}


def train_rates(model: CausalLM, peer: nn.Module) -> dict[str, float]:
    """Tokens per second of forward, loss, backward and fused AdamW."""
    ids = torch.randint(0, VOCABULARY, (TRAIN_ROWS, TRAIN_LENGTH))
    packed = ids.view(1, -1)
    lengths = torch.tensor([TRAIN_LENGTH - 32, TRAIN_LENGTH + 32] * (TRAIN_ROWS // 2))
    documents = torch.repeat_interleave(torch.arange(TRAIN_ROWS), lengths).unsqueeze(0)

    def step(network: nn.Module, logits: Callable[[], Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

        def run() -> None:
            F.cross_entropy(logits().flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    runs: dict[str, Callable[[], object]] = {
        "etude": step(model, lambda: model(ids).logits),
        "etude_packed": step(model, lambda: model(packed, DocumentMask.packed(documents)).logits),
        "transformers": step(peer, lambda: peer(ids, use_cache=False).logits),
    }
    return {name: ids.numel() / seconds for name, seconds in best_s(runs, repeats=12).items()}


def family_report(family: str) -> dict:
    """One family at the laptop recipe's size."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = new_model(ModelSettings.model_validate({"family": family}), VOCABULARY)
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(model, Path(folder) / "c")
        peer = AutoModelForCausalLM.from_pretrained(Path(folder) / "c", dtype=torch.float32)
    count = count_parameters(model.config)
    report: dict = {"parameters": count.total, "active": count.active, "decode_tokens_per_s": {}}
    print(f"{family}: {count.total:,} parameters, {count.active:,} active per token")
    for batch in BATCHES:
        rates = report["decode_tokens_per_s"][str(batch)] = decode_rates(model, peer, batch)
        print(line(f"decode, {batch} rows", rates))
    rates = report["train_tokens_per_s"] = train_rates(model, peer)
    print(line(f"train step, {TRAIN_ROWS} x {TRAIN_LENGTH}", rates))
    return report


def line(title: str, rates: dict[str, float]) -> str:
    parts = "   ".join(f"{name} {rate:,.0f} tok/s" for name, rate in rates.items())
    return f"  {title:24s} {parts}   ratio {rates['etude'] / rates['transformers']:.1f}"


def experts_report() -> None:
    """Milliseconds of one layer, forward, by back end."""
    config = ModelConfig.from_settings(ModelSettings.model_validate({}), VOCABULARY)
    layer = Experts(config)
    nn.init.normal_(layer.gate_up, std=0.1)
    nn.init.normal_(layer.down, std=0.1)
    for tokens in (1, 8, 32, 64, 256, 512, 2048, 8192):
        x = torch.randn(tokens, config.hidden_size)
        experts = torch.rand(tokens, config.experts).topk(config.experts_per_token).indices
        weights = torch.rand(tokens, config.experts_per_token)
        with torch.inference_mode():
            runs: dict[str, Callable[[], object]] = {
                name: partial(run_experts, x, layer.weights, experts, weights, name) for name in BACK_ENDS
            }
            times = best_s(runs, repeats=10)
        print(f"{tokens:5d} tokens  " + "  ".join(f"{name} {s * 1e3:8.3f} ms" for name, s in times.items()))


def decoding_report() -> dict[str, dict[str, float]]:
    """Milliseconds of a decoding step of six of SmolLM2-135M's layers: rows padded as in training or less, contexts copied or read in place, or
    what all sessions begin with (1,504 tokens, as the tools of a preset have) read once."""
    shape = {"family": "llama", "hidden_size": 576, "layers": 6, "heads": 9, "kv_heads": 3, "head_dim": 64}
    settings = ModelSettings.model_validate(shape | {"dense_intermediate": 1536, "tied": True, "max_positions": 8192})
    model = new_model(settings, 49_152)
    report = {}
    for rows, held in ((1, 64), (8, 64), (32, 64), (8, 1536), (32, 1536)):
        cache = KVCache(model.config, rows, held + 1)
        cache.buffer.normal_()
        cache.buffer[:, 1:, :PREFIX_TOKENS] = cache.buffer[:, :1, :PREFIX_TOKENS]
        runs = {
            f"{padding} rows, {contexts} contexts": partial(_decoding_step, model, cache, held, padding, contexts)
            for padding, contexts in (("padded", "copied"), ("few", "copied"), ("few", "read"), ("few", "shared"))
            if contexts != "shared" or held > PREFIX_TOKENS
        }
        times = best_s(runs, repeats=5)
        report[f"{rows} sessions of {held}"] = {name: round(s * 1e3, 1) for name, s in times.items()}
        print(
            f"{rows:3d} sessions of {held:5d}  " + "   ".join(f"{name} {s * 1e3:.1f} ms" for name, s in times.items())
        )
    return report


def _decoding_step(model: CausalLM, cache: KVCache, held: int, padding: str, contexts: str) -> None:
    few, limit, in_place = linear_module._decoding_rows, cache_module.LONG_CONTEXT, cache_module.READ_IN_PLACE
    linear_module._decoding_rows = linear_module._training_rows if padding == "padded" else few
    cache_module.LONG_CONTEXT = 1 << 40 if contexts == "copied" else limit
    cache_module.READ_IN_PLACE = 1 << 40 if contexts == "copied" else in_place
    cache.lengths.fill_(held)
    cache.origins, cache.shared = [0] * cache.slots, [PREFIX_TOKENS if contexts == "shared" else 0] * cache.slots
    slots = torch.arange(cache.slots)
    model.extend(slots.unsqueeze(1), torch.ones_like(slots), slots, cache)
    linear_module._decoding_rows, cache_module.LONG_CONTEXT, cache_module.READ_IN_PLACE = few, limit, in_place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", action="store_true", help="time the expert back ends instead")
    parser.add_argument("--decoding", action="store_true", help="time decoding steps of SmolLM2's shapes instead")
    parser.add_argument("--out", type=Path, help="write the rates as JSON to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if arguments.experts:
        experts_report()
        return
    if arguments.decoding:
        report: dict[str, Any] = decoding_report()
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=2) + "\n")
        return
    families = ("deepseek_v3", "qwen3_moe")
    report = {family: family_report(family) for family in families} | {"torch": torch.__version__}
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
