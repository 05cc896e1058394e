"""Engine speed, one thread, against two peers in the same run: the bare model loop and transformers' generate.

    OMP_NUM_THREADS=1 python benchmarks/engine_speed.py [--json FILE]

Prints medians of CPU time (the machine may be shared, and the engine is one thread). Three tables: decode tokens per CPU
second by batch size; continuous against static batching for answers of mixed length; turns of agents (short answers, short
tool outputs) with sticky slots against computing every turn from its start.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from etude.agent.policy.protocol import Request
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

VOCAB, PROMPT, NEW = 800, 64, 64
REPEATS, PEER_REPEATS = 5, 3  # the peer takes most of the time and is far enough away
BATCHES = (1, 8, 32, 64)


def prompts(count: int, length: int = PROMPT) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [tuple(torch.randint(32, VOCAB, (length,), generator=generator).tolist()) for _ in range(count)]


def cpu_seconds(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def interleaved(works: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """The median of each, taken in turns, so that a slow moment of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(work())
    return {name: statistics.median(values) for name, values in times.items()}


def engine(model: CausalLM, **changes: Any) -> EngineCore:
    settings = {"max_len": 512, "share_prefix": False, **changes}
    return EngineCore(model, EngineSettings.model_validate(settings), clock=time.thread_time)


def drain(core: EngineCore) -> None:
    while core.busy:
        core.step()


def engine_decode(model: CausalLM, batch: int) -> float:
    """CPU seconds of NEW - 1 decode steps (the first token belongs to the prefill)."""
    core = engine(model)
    for n, ids in enumerate(prompts(batch)):
        core.submit(Request(f"s{n}", (), prompt_ids=ids, max_tokens=NEW, seed=n))
    drain(core)
    return core.stats.decode_s


@torch.inference_mode()
def bare_decode(model: CausalLM, batch: int) -> float:
    """The same steps of `model.extend` with nothing around it: the engine's ceiling."""
    cache, slots = KVCache(model.config, batch, 512), torch.arange(batch)
    ids, ones = torch.tensor(prompts(batch)), torch.ones(batch, dtype=torch.long)
    model.extend(ids, ones * PROMPT, slots, cache)
    token = ids[:, :1]

    def steps() -> None:
        for _ in range(NEW - 1):
            model.extend(token, ones, slots, cache)

    return cpu_seconds(steps)


def transformers_decode(peer: Any, batch: int) -> float:
    """`generate` of the same weights, its one-token call (the prefill) taken off."""
    ids = torch.tensor(prompts(batch))
    options = {"do_sample": True, "top_k": 0, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}

    def tokens(count: int) -> float:
        return cpu_seconds(lambda: peer.generate(ids, max_new_tokens=count, min_new_tokens=count, **options))

    return tokens(NEW) - tokens(1)


def load_peer(model: CausalLM, folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    save_checkpoint(model, folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def decode_table(model: CausalLM, peer: Any) -> dict[str, dict[str, float]]:
    table = {}
    for batch in BATCHES:
        times = interleaved(
            {
                "engine": lambda b=batch: engine_decode(model, b),
                "bare": lambda b=batch: bare_decode(model, b),
            },
            REPEATS,
        )
        times |= interleaved({"transformers": lambda b=batch: transformers_decode(peer, b)}, PEER_REPEATS)
        rates = {f"{name}_tokens_per_s": batch * (NEW - 1) / value for name, value in times.items()}
        over = times["engine"] / times["bare"] - 1
        table[str(batch)] = {**rates, "overhead": over, "speedup": times["transformers"] / times["engine"]}
    return table


def mixed_lengths(model: CausalLM) -> dict[str, float]:
    """96 answers of 4 to 128 tokens through 32 places: all as they come, or 32 by 32, each waiting for the longest."""
    lengths = [4 + 31 * n % 125 for n in range(96)]

    def run(parts: list[range]) -> float:
        core = engine(model, max_slots=32, max_batch=32)

        def work() -> None:
            for part in parts:
                for n in part:
                    core.submit(Request(f"s{n}", (), prompt_ids=questions[n], max_tokens=lengths[n], seed=n))
                drain(core)

        return cpu_seconds(work)

    questions = prompts(96, 32)
    static = [range(start, start + 32) for start in range(0, 96, 32)]
    times = interleaved({"continuous": lambda: run([range(96)]), "static": lambda: run(static)}, 5)
    return {f"{k}_tokens_per_s": sum(lengths) / v for k, v in times.items()} | {
        "speedup": times["static"] / times["continuous"]
    }


def agent_turns(model: CausalLM) -> dict[str, float]:
    """64 sessions of 5 turns at once (prompt 60 shared by groups of 8, answer 12, tool output 16): what RL asks for."""
    tools, openings = prompts(64 * 5, 16), prompts(8, 60)

    def run(sticky: bool) -> float:
        core = engine(model, share_prefix=sticky)
        held, turn, session = {}, {}, {}

        def ask(n: int) -> None:
            name = f"s{n}" if sticky else f"s{n}-{turn[n]}"
            session[core.submit(Request(name, (), prompt_ids=held[n], max_tokens=8 + n % 9, seed=n))] = n

        def work() -> None:
            for n in range(64):
                held[n], turn[n] = openings[n // 8], 0
                ask(n)
            while core.busy:
                for ticket, completion in core.step():
                    n = session[ticket]
                    turn[n] += 1
                    if turn[n] < 5 and completion.tokens is not None:
                        held[n] = (*held[n], *completion.tokens.ids, *tools[5 * n + turn[n]])
                        ask(n)

        return cpu_seconds(work)

    sampled = sum(5 * (8 + n % 9) for n in range(64))
    times = interleaved({"sticky": lambda: run(True), "recomputed": lambda: run(False)}, 3)
    return {
        "sticky_tokens_per_s": sampled / times["sticky"],
        "anew_tokens_per_s": sampled / times["recomputed"],
        "speedup": times["recomputed"] / times["sticky"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--family", default="deepseek_v3", choices=["deepseek_v3", "qwen3_moe"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = new_model(ModelSettings.model_validate({"family": options.family}), VOCAB).eval()
    with tempfile.TemporaryDirectory() as folder:
        peer = load_peer(model, Path(folder) / "model")
        figures = {"family": options.family, "decode": decode_table(model, peer)}
    figures |= {"mixed_lengths": mixed_lengths(model), "agent_turns": agent_turns(model)}
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
