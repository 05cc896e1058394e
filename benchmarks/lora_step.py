"""One step of SFT with all weights and with adapters, in turn, each in a process: parameters, CPU time, peak memory.

python benchmarks/lora_step.py CHECKPOINT --out benchmarks/results/lora_step.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

WAYS = {"full": {}, "lora16": {"rank": 16}, "dora16": {"rank": 16, "dora": True}}


def measure(checkpoint: str, way: str, tokens: int, steps: int) -> dict[str, float]:
    """Steps of one way of training in this process; the first step warms up."""
    import numpy as np
    import torch

    from etude.learn.model.adapters import add_adapters
    from etude.learn.model.checkpoint import load_checkpoint
    from etude.learn.model.lora_settings import LoraSettings
    from etude.learn.train.batch import TrainBatch, padded_batch
    from etude.learn.train.next_token import NextToken
    from etude.learn.train.optimizer import build_optimizers
    from etude.learn.train.settings import OptimizerSettings

    torch.set_num_threads(1)
    model = load_checkpoint(checkpoint)
    if WAYS[way]:
        add_adapters(model, LoraSettings.model_validate(WAYS[way]))
    learner = NextToken(model, 0.0)
    optimizers = build_optimizers(model, OptimizerSettings(matrices="adamw", adam_lr=1e-4))
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(0, model.config.vocab_size, (tokens,), generator=generator).numpy()
    batch: TrainBatch = padded_batch([row], [np.arange(tokens) > 0])
    seconds: list[float] = []
    for _ in range(steps + 1):
        began = time.process_time()
        learner.loss(batch).backward()
        optimizers.clip()
        optimizers.step()
        optimizers.zero_grad()
        seconds.append(time.process_time() - began)
    return {
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "cpu_s": median(seconds[1:]),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.checkpoint, given.way, given.tokens, given.steps)))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, rows in found.items():
            words = [
                sys.executable,
                "-P",
                __file__,
                given.checkpoint,
                "--way",
                way,
                "--tokens",
                str(given.tokens),
                "--steps",
                str(given.steps),
            ]
            rows.append(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
    result = {way: {key: median(row[key] for row in rows) for key in rows[0]} for way, rows in found.items()}
    text = json.dumps({"tokens": given.tokens, "rounds": given.rounds, "steps": given.steps, **result}, indent=2)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
