"""What a version of RL's weights takes in the store, all weights against adapters, and what an engine needs to merge these.

python benchmarks/adapter_sync.py smollm2-135m --out benchmarks/results/adapter_sync.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from etude.learn.engine.adapter_merger import AdapterMerger
from etude.learn.model.adapters import add_adapters, trained_state
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.named_checkpoint import checkpoint_folder
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore

RATES = {"full": 5e-5, "adapters": 2e-4}  # of Adam, as recipes have them


def measure(checkpoint: Path, way: str, rank: int, steps: int) -> dict[str, Any]:
    """Adam steps on noise; bytes of each version, and processor seconds to publish it and to merge the last."""
    torch.manual_seed(0)
    model, lora = load_checkpoint(checkpoint), LoraSettings(rank=rank)
    if way == "adapters":
        add_adapters(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATES[way], weight_decay=0)
    found: dict[str, Any] = {"way": way, "trained": sum(p.numel() for p in trained), "versions": []}
    with tempfile.TemporaryDirectory() as folder:
        store = WeightStore(Path(folder))
        publisher = Publisher(store)
        publisher.join("engine")
        for version in range(steps + 1):
            start = time.process_time()
            published = publisher.publish(trained_state(model), version)
            cost = {"delta_bytes": published.delta_bytes, "publish_cpu_s": round(time.process_time() - start, 2)}
            found["versions"].append(cost | {"anchor_bytes": published.anchor_bytes})
            publisher.acknowledge("engine", version)
            for parameter in trained:
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        received = Receiver(store).catch_up().state
        if way == "adapters":
            merge = AdapterMerger(checkpoint, lora)
            start = time.process_time()
            merge(received)
            found["merge_cpu_s"] = round(time.process_time() - start, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = checkpoint_folder(options.checkpoint)
    rows = [measure(folder, way, options.rank, options.steps) for way in RATES]
    text = json.dumps({"checkpoint": options.checkpoint, "rank": options.rank, "ways": rows}, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
