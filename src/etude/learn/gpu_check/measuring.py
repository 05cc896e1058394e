"""The clock of `etude gpu check`, and how large what it measures is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

VOCABULARY = 16_384
REPEATS = 5
FAMILIES = ("deepseek_v3", "qwen3_moe")
_TINY = {"hidden_size": 64, "layers": 2, "heads": 4, "experts": 8, "experts_per_token": 2, "max_positions": 4096}
# 0.66B parameters, of which a token takes 0.15B to 0.17B.
_SMALL = {
    "hidden_size": 1024, "layers": 12, "heads": 16, "kv_lora_rank": 256, "nope_dim": 64, "rope_dim": 32, "v_dim": 64, "kv_heads": 4,
    "head_dim": 64, "dense_intermediate": 4096, "moe_intermediate": 512, "experts": 32, "experts_per_token": 4, "max_positions": 4096,
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """How large everything is: for a GPU, or to show on a CPU that the check works. A step has `rows` rows of `length` tokens; `side`: of the square
    matrices whose product is a ceiling; each number of `sessions` decodes `drawn` tokens."""

    device: str
    ranks: int
    sizes: Mapping[str, Any]
    rows: int
    length: int
    side: int
    sessions: tuple[int, ...]
    drawn: int

    @classmethod
    def of(cls, device: str, ranks: int) -> Scale:
        if device == "cuda":
            return cls(device, ranks, _SMALL, 8, 2048, 8192, (1, 16, 64), 65)
        return cls(device, ranks, _TINY, 4, 64, 512, (1, 4), 5)

    def model(self, family: str) -> CausalLM:
        """With drawn weights, the same each time, on the CPU."""
        return new_model(ModelSettings.model_validate({"family": family, **self.sizes}), VOCABULARY)


class Clock:
    """Seconds of work on one device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def medians(self, works: Mapping[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
        """Median seconds of each, taken in turns after one call that warms up."""
        times: dict[str, list[float]] = {name: [] for name in works}
        for number in range(repeats + 1):
            for name, work in works.items():
                began = self.now()
                work()
                if number:
                    times[name].append(self.now() - began)
        return {name: statistics.median(values) for name, values in times.items()}
