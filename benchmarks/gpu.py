"""What the model costs on one GPU, as it is: fp32, one process, next to transformers with the same weights in the same run.

    python benchmarks/gpu.py speed --out FILE                 # training and decoding of both families, and memory
    python benchmarks/gpu.py experts --out FILE               # the back ends of the experts by number of tokens
    python benchmarks/gpu.py tokens FOLDER --out FOLDER       # tokens of the Python files under FOLDER (needs no GPU)
    python benchmarks/gpu.py pretrain FOLDER --out FILE       # a real phase of pretraining on those tokens, one half of it resumed

Times are wall-clock seconds around synchronised work, medians of interleaved repeats. `--device cpu --size tiny` shows that the script works.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.gpu_check.measuring import Clock
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.experts import BACK_ENDS, Experts, run_experts
from etude.learn.model.init import new_model
from etude.learn.model.mask import DocumentMask
from etude.learn.model.settings import ModelSettings

VOCABULARY = 16_384
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},  # the laptop recipe's
    "small": {
        **{
            "hidden_size": 1024,
            "layers": 12,
            "heads": 16,
            "kv_lora_rank": 256,
            "nope_dim": 64,
            "rope_dim": 32,
            "v_dim": 64,
        },
        **{"kv_heads": 4, "head_dim": 64, "dense_intermediate": 4096, "moe_intermediate": 512},
        **{"experts": 32, "experts_per_token": 4, "max_positions": 4096},
    },
}
ROWS, LENGTH = 8, 2048  # tokens of a training step
PROMPT, NEW = 256, 65  # tokens of a decoded row; the first new one belongs to the prefill
BATCHES = (1, 16, 64)
DOCUMENT_TOKENS = 4096


def facts(device: str) -> dict[str, Any]:
    """The machine, and the two rates that bound everything on it."""
    found: dict[str, Any] = {"torch": torch.__version__, "matmul_precision": torch.get_float32_matmul_precision()}
    if device != "cuda":
        return found
    x = torch.randn(8192, 8192, device=device)
    seconds = Clock(device).medians({"product": lambda: x @ x, "copy": lambda: x.clone()})
    card = torch.cuda.get_device_properties(0)
    return found | {
        "card": card.name,
        "memory_gib": round(card.total_memory / 2**30, 1),
        "fp32_tflops": round(2 * 8192**3 / seconds["product"] / 1e12, 1),
        "copy_tb_per_s": round(2 * x.numel() * 4 / seconds["copy"] / 1e12, 2),
    }


def peer_of(model: CausalLM, device: str) -> nn.Module:
    """transformers' class with the same weights."""
    from transformers import AutoModelForCausalLM

    from etude.learn.model.checkpoint import save_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(model, Path(folder) / "c")
        peer: nn.Module = AutoModelForCausalLM.from_pretrained(Path(folder) / "c", dtype=torch.float32)
        return peer.to(device)


def training(model: CausalLM, peer: nn.Module, clock: Clock, tokens: tuple[int, int]) -> dict[str, Any]:
    """Tokens a second of forward, loss, backward and fused AdamW, and the peak memory of each."""
    ids = torch.randint(0, VOCABULARY, tokens, device=clock.device)
    rows, length = tokens
    documents = torch.arange(rows, device=clock.device).repeat_interleave(length).view(1, -1)

    def step(network: nn.Module, logits: Callable[[], Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True)

        def run() -> None:
            F.cross_entropy(logits().flatten(0, 1).float(), ids.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    works = {
        "etude": step(model, lambda: model(ids).logits),
        "etude_packed": step(model, lambda: model(ids.view(1, -1), DocumentMask.packed(documents)).logits),
        "transformers": step(peer, lambda: peer(ids, use_cache=False).logits),
    }
    return rates(clock.medians(works), ids.numel()) | {"peak_gib": {name: peak(clock, works[name]) for name in works}}


def rates(seconds: dict[str, float], tokens: int) -> dict[str, Any]:
    found: dict[str, Any] = {f"{name}_tokens_per_s": round(tokens / s, 1) for name, s in seconds.items()}
    return found | {"ratio": round(seconds["transformers"] / seconds["etude"], 2)}


def peak(clock: Clock, work: Callable[[], object]) -> float | None:
    """GiB allocated at most during one call, with all that both models hold."""
    if clock.device != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    work()
    return round(torch.cuda.max_memory_allocated() / 2**30, 2)


def decoding(model: CausalLM, peer: Any, clock: Clock, batch: int) -> dict[str, Any]:
    """Tokens a second of NEW - 1 decode steps, prefill left out: the engine with its scheduler, and transformers' generate."""
    from etude.agent.policy.protocol import Request
    from etude.learn.engine.core import EngineCore
    from etude.learn.engine.settings import EngineSettings

    settings = EngineSettings(max_len=512, max_slots=batch, max_batch=batch, share_prefix=False)
    core = EngineCore(model, settings.model_copy(update={"device": clock.device}), clock=clock.now)
    ids = torch.randint(32, VOCABULARY, (batch, PROMPT))
    there = ids.to(clock.device)
    options = {"do_sample": True, "top_k": 0, "pad_token_id": 0, "attention_mask": torch.ones_like(there)}
    turn = 0

    def engine() -> float:
        nonlocal turn
        turn += 1
        before = core.stats.decode_s
        for number, row in enumerate(ids.tolist()):
            core.submit(Request(f"{turn}-{number}", (), prompt_ids=tuple(row), max_tokens=NEW, seed=number))
        while core.busy:
            core.step()
        return core.stats.decode_s - before

    def generate(count: int) -> float:
        began = clock.now()
        with torch.inference_mode():
            peer.generate(there, max_new_tokens=count, min_new_tokens=count, **options)
        return clock.now() - began

    times = [(engine(), generate(NEW) - generate(1)) for _ in range(4)][1:]
    ours, theirs = (statistics.median(values) for values in zip(*times, strict=True))
    return rates({"etude": ours, "transformers": theirs}, batch * (NEW - 1))


def back_ends(size: dict[str, Any], clock: Clock) -> dict[str, dict[str, float]]:
    """Milliseconds of one layer of experts by number of experts and tokens: forward alone (as in decoding), and with the backward pass."""
    table = {}
    for count in (size.get("experts", 8), 128):
        config = ModelConfig.from_settings(ModelSettings.model_validate(size | {"experts": count}), VOCABULARY)
        layer = Experts(config).to(clock.device)
        for weight in layer.parameters():
            nn.init.normal_(weight, std=0.02)
        for tokens in (1, 16, 64, 256, 1024, 16_384):
            chosen = [name for name in BACK_ENDS if name != "dense" or tokens < 16_384]
            works = {name: partial(one_layer, layer, config, tokens, clock.device, name) for name in chosen}
            with torch.inference_mode():
                table[f"{count} experts, {tokens} tokens"] = milliseconds(
                    clock.medians({n: w() for n, w in works.items()})
                )
            if tokens >= 256:
                both = {name: partial(backwards, work()) for name, work in works.items()}
                table[f"{count} experts, {tokens} tokens, with backward"] = milliseconds(clock.medians(both))
    return table


def one_layer(layer: Experts, config: ModelConfig, tokens: int, device: str, name: str) -> Callable[[], Tensor]:
    """The layer by one back end over random tokens that choose random experts."""
    x = torch.randn(tokens, config.hidden_size, device=device)
    experts = torch.rand(tokens, config.experts, device=device).topk(config.experts_per_token).indices
    weights = torch.rand(tokens, config.experts_per_token, device=device)
    return lambda: run_experts(x, layer.weights, experts, weights, name)


def backwards(work: Callable[[], Tensor]) -> None:
    work().sum().backward()


def milliseconds(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(s * 1e3, 3) for name, s in seconds.items()}


def speed(options: argparse.Namespace) -> dict[str, Any]:
    clock = Clock(options.device)
    report: dict[str, Any] = facts(options.device)
    tokens = (ROWS, LENGTH) if options.device == "cuda" else (2, 128)
    for family in ("deepseek_v3", "qwen3_moe"):
        settings = ModelSettings.model_validate({"family": family, **SIZES[options.size]})
        model = new_model(settings, VOCABULARY)
        count = count_parameters(model.config)
        peer = peer_of(model, options.device)
        model.to(options.device)
        entry: dict[str, Any] = {"parameters": count.total, "active": count.active}
        if not options.decoding_only:
            entry["training"] = training(model, peer, clock, tokens)
        entry["decoding"] = {str(batch): decoding(model, peer, clock, batch) for batch in BATCHES}
        report[family] = entry
        print(json.dumps({family: entry}), flush=True)
        del model, peer
    return report


def experts(options: argparse.Namespace) -> dict[str, Any]:
    return facts(options.device) | {"experts_ms": back_ends(SIZES[options.size], Clock(options.device))}


def tokens(options: argparse.Namespace) -> dict[str, Any]:
    """Shards and a tokenizer in the folder `--out`."""
    from etude.agent.chat.special import SPECIAL_TOKENS
    from etude.learn.corpus.shards import ShardWriter
    from etude.learn.corpus.tokenizer import train_tokenizer

    files = sorted(path for path in options.folder.rglob("*.py") if path.is_file() and not path.is_symlink())
    texts = [path.read_text("utf-8", errors="ignore") for path in files]
    tokenizer = train_tokenizer(texts[:: max(1, len(texts) // 1500)], SPECIAL_TOKENS, VOCABULARY)
    writer = ShardWriter(options.out / "code.files", VOCABULARY)
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:DOCUMENT_TOKENS]
        if len(ids) > 16:
            writer.add(ids, len(text.encode()))
    shards = writer.finish()
    return {"documents": len(shards), "tokens": shards.total_tokens}


def pretrain(options: argparse.Namespace) -> dict[str, Any]:
    """The phase twice: as a whole, and ended at its half and resumed; losses, speed and whether the weights agree."""
    from etude.learn.weights.state import state_digest

    report = facts(options.device)
    with tempfile.TemporaryDirectory() as folder:
        whole, losses, seconds, result = phase(options, Path(folder) / "whole", options.steps)
        halves = Path(folder) / "halves"
        phase(options, halves, options.steps // 2)
        resumed, _, _, _ = phase(options, halves, options.steps)
    return report | {
        "steps": result.steps,
        "tokens": result.tokens,
        "tokens_per_s": round(result.tokens / seconds, 1),
        "losses": losses,
        "resumed_bits_equal": state_digest(whole.state_dict()) == state_digest(resumed.state_dict()),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if options.device == "cuda" else None,
    }


def phase(options: argparse.Namespace, out: Path, steps: int) -> tuple[CausalLM, list[float], float, Any]:
    """One call of the stage's own loop, with Muon, AdamW and the balanced router, as a recipe runs it."""
    from etude.core.events.log import EventLog
    from etude.learn.corpus.mixture import Mixture
    from etude.learn.corpus.shards import TokenShards
    from etude.learn.train.pretrain import run_pretrain
    from etude.learn.train.settings import PhaseSettings

    mixture = Mixture({"code": TokenShards(options.folder / "code.files")}, {"code": 1.0}, seed=0)
    loop = {"steps": steps, "checkpoint_every": options.steps, "keep_checkpoints": 1, "log_every": 2}
    rows = {"row_tokens": 1024, "batch_rows": 16} if options.size != "tiny" else {}
    optimizer = {"matrices": options.matrices, "low_rank": options.matrices}
    settings = PhaseSettings.model_validate(
        {"loop": loop, "schedule": {"shape": "constant"}, "optimizer": optimizer, **rows}
    )
    settings = settings.model_copy(update={"loop": settings.loop.model_copy(update={"device": options.device})})
    model = new_model(ModelSettings.model_validate(SIZES[options.size]), VOCABULARY)
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    result = run_pretrain("base", settings, model, mixture, out, EventLog(out / "events.jsonl"))
    seconds = time.perf_counter() - began
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    losses = [round(event["values"]["loss"], 3) for event in events if "loss" in event.get("values", {})]
    return model, losses, seconds, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["speed", "experts", "tokens", "pretrain"])
    parser.add_argument("folder", type=Path, nargs="?", help="Python files, or the folder that `tokens` wrote.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--steps", type=int, default=100, help="Steps of the phase.")
    parser.add_argument("--decoding-only", action="store_true", help="Leave training out of `speed`.")
    parser.add_argument("--matrices", choices=["muon", "adamw"], default="muon", help="Optimizer of the matrices.")
    parser.add_argument("--matmul", choices=["highest", "high"], default="highest", help='"high" takes TF32 on a GPU.')
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(options.matmul)
    report = {"speed": speed, "experts": experts, "tokens": tokens, "pretrain": pretrain}[options.part](options)
    print(json.dumps(report, indent=1))
    if options.part != "tokens":
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
