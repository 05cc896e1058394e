"""One step of SFT on sessions that begin alike, in several ways, each in a process: parameters, CPU time, peak memory and its prediction.

python benchmarks/training_step.py smollm2-135m --out benchmarks/results/training_step.json
python benchmarks/training_step.py smollm2-135m --allocators glibc tcmalloc --sessions 8 --out benchmarks/results/training_allocators.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

LORA, DORA = {"rank": 16}, {"rank": 16, "dora": True}
WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, recompute": {"recompute": True},
    "lora": {"lora": LORA},
    "dora": {"lora": DORA},
}
BEGINNING, OWN = (
    1_497,
    260,
)  # tokens of a session's prompt and tools with the preset search_replace, and of what follows


def measure(checkpoint: str, way: str, sessions: int, steps: int) -> dict[str, float]:
    """Steps of one way of training in this process; the first step warms up."""
    import numpy as np
    import torch

    from etude.learn.model.adapters import add_adapters
    from etude.learn.model.checkpoint import load_checkpoint
    from etude.learn.model.compute import compute_in
    from etude.learn.model.heap import fit_heap
    from etude.learn.model.lora_settings import LoraSettings
    from etude.learn.model.named_checkpoint import checkpoint_folder
    from etude.learn.model.step_memory import ModelSize, training_bytes
    from etude.learn.train.batch import shared_batch
    from etude.learn.train.next_token import NextToken
    from etude.learn.train.optimizer import build_optimizers
    from etude.learn.train.settings import OptimizerSettings

    torch.set_num_threads(1)
    model = load_checkpoint(checkpoint_folder(checkpoint))
    fit_heap(model)
    lora = LoraSettings.model_validate(WAYS[way].get("lora", {}))
    if lora.rank:
        add_adapters(model, lora)
    recompute = WAYS[way].get("recompute", False)
    compute_in(model, "fp32", recompute)
    learner = NextToken(model, 0.0)
    optimizers = build_optimizers(model, OptimizerSettings(matrices="adamw", adam_lr=1e-4))
    dice = np.random.default_rng(0)
    first = dice.integers(0, model.config.vocab_size, BEGINNING)
    rows = [np.concatenate([first, dice.integers(0, model.config.vocab_size, OWN)]) for _ in range(sessions)]
    batch = shared_batch(rows, [(np.arange(len(row)) >= BEGINNING).astype(np.float32) for row in rows])
    seconds: list[float] = []
    before = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(steps + 1):
        if number == 1:
            before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.process_time()
        learner.loss(batch).backward()
        optimizers.clip()
        optimizers.step()
        optimizers.zero_grad()
        seconds.append(time.process_time() - began)
    tokens, after = batch.token_count, resource.getrusage(resource.RUSAGE_SELF)
    size = ModelSize.of(model.config, tokens, BEGINNING + OWN, lora if lora.rank else None)
    return {
        "tokens": tokens,
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "cpu_s": median(seconds[1:]),
        "kernel_s": (after.ru_stime - before.ru_stime) / steps,
        "page_faults": (after.ru_minflt - before.ru_minflt) / steps,
        "peak_bytes": after.ru_maxrss * 1024,
        "predicted_bytes": training_bytes(size, tokens, recompute=recompute),
    }


def in_process(words: list[str], name: str) -> dict[str, float]:
    """What `measure` gives with these words, in a process with that allocator."""
    from etude.core import allocator

    if name == "tcmalloc" and not allocator.variables():
        raise SystemExit(f"tcmalloc is not installed (Debian: {allocator.PACKAGE}), or LD_PRELOAD is set")
    environment = os.environ | (allocator.variables() if name == "tcmalloc" else {})
    command = [sys.executable, "-P", __file__, *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--allocators", choices=["glibc", "tcmalloc"], nargs="+", default=["glibc"])
    parser.add_argument("--sessions", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.checkpoint, given.way, given.sessions[0], given.steps)))
        return
    cases = itertools.product(given.sessions, given.ways, given.allocators)
    found: dict[tuple[int, str, str], list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(given.rounds):
        for (sessions, way, allocator), rows in found.items():
            words = [given.checkpoint, "--way", way, "--sessions", str(sessions), "--steps", str(given.steps)]
            rows.append(in_process(words, allocator))
            print(way, sessions, allocator, rows[-1], file=sys.stderr, flush=True)
    result = [
        {"way": way, "sessions": sessions, "allocator": allocator}
        | {key: median(row[key] for row in rows) for key in rows[0]}
        for (sessions, way, allocator), rows in found.items()
    ]
    text = json.dumps({"rounds": given.rounds, "steps": given.steps, "rows": result}, indent=2)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
