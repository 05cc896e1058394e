"""`etude gpu check`: the machine and the rates that bound everything on it, then every part by itself, so that one that fails leaves the others their
figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from etude.learn.gpu_check.measuring import Clock, Scale
from etude.learn.gpu_check.sampling import decoding, experts
from etude.learn.gpu_check.training import layouts, one_process

# What no part measures yet.
NOT_MEASURED = {
    "vllm": "benchmarks/vllm_engine.py measures vLLM in its own Python",
    "low_precision": "formats are emulated: benchmarks/low_precision.py measures what they round",
}


@dataclass(frozen=True)
class CheckedPart:
    """Figures, or why there are none: `failed` where the part raised, else it does not apply."""

    name: str
    figures: dict[str, Any] | None
    reason: str = ""
    failed: bool = False


def run_parts(scale: Scale) -> Iterator[CheckedPart]:
    """In order; each as soon as it is there."""
    rates = _part("ceilings", lambda: ceilings(scale))
    yield rates
    if rates.figures is not None:
        found = rates.figures
        yield _part("one_process", lambda: one_process(scale, found))
    if scale.ranks > 1:
        yield _part("layouts", lambda: layouts(scale))
    else:
        yield CheckedPart("layouts", None, "one GPU: a layout needs two")
    yield _part("experts", lambda: experts(scale))
    yield _part("decoding", lambda: decoding(scale))
    for name, reason in NOT_MEASURED.items():
        yield CheckedPart(name, None, reason)


def _part(name: str, work: Callable[[], dict[str, Any]]) -> CheckedPart:
    try:
        return CheckedPart(name, work())
    except Exception as error:  # noqa: BLE001 - said in the part's place
        return CheckedPart(name, None, f"{type(error).__name__}: {error}", failed=True)


def document(scale: Scale, parts: list[CheckedPart]) -> dict[str, Any]:
    """As the file has it. Figures of a CPU say nothing of a GPU, and are marked so."""
    return {
        "machine": machine(scale),
        "of_gpus": scale.device == "cuda",
        "parts": {part.name: part.figures for part in parts if part.figures is not None},
        "not_measured": {part.name: part.reason for part in parts if part.figures is None and not part.failed},
        "failed": {part.name: part.reason for part in parts if part.failed}
        | {f"layouts: {name}": "other weights than one process" for name in disagreeing(parts)},
    }


def disagreeing(parts: list[CheckedPart]) -> list[str]:
    """Layouts that reached other weights than one process."""
    figures = next((part.figures for part in parts if part.name == "layouts"), None) or {}
    return [name for name, row in figures.items() if not row.get("agrees", True)]


def machine(scale: Scale) -> dict[str, Any]:
    """Versions, and on GPUs what each is."""
    found: dict[str, Any] = {"torch": torch.__version__, "device": scale.device, "ranks": scale.ranks}
    if scale.device != "cuda":
        return found
    cards = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[attr-defined]
    return found | {
        "cuda": torch.version.cuda,
        "nccl": nccl,
        "cards": [{"name": card.name, "memory_bytes": card.total_memory} for card in cards],
    }


def ceilings(scale: Scale) -> dict[str, float]:
    """What one device reaches at best: operations a second of square products, bytes a second that a copy reads and writes."""
    clock, side = Clock(scale.device), scale.side
    exact = torch.randn(side, side, device=scale.device)
    rounded = exact.bfloat16()
    works = {"fp32": lambda: exact @ exact, "bf16": lambda: rounded @ rounded, "copy": lambda: exact.clone()}
    seconds = clock.medians(works)
    return {
        "fp32_flops": 2 * side**3 / seconds["fp32"],
        "bf16_flops": 2 * side**3 / seconds["bf16"],
        "copy_bytes_per_s": 2 * exact.numel() * exact.element_size() / seconds["copy"],
    }


def gpus() -> int:
    """How many this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
