"""Who computes on which GPU: asked at the start, where an answer costs nothing, and handed to Ray.

Ray hides every GPU from a process that takes none. On a cluster the recipe says what each takes (`cluster.trainer = { GPU = 1 }`); on one
machine those that want a GPU share what there is evenly, none over two.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from etude.learn.engine.settings import EngineSettings
from etude.learn.model.device import DeviceMissing, device_of
from etude.rl.settings import ClusterSettings, RlSettings


def check_devices(settings: RlSettings, engine: EngineSettings, cluster: ClusterSettings) -> None:
    """Raises DeviceMissing or ValueError where a process would not find the GPU that it is to compute on."""
    if not cluster.address:
        device_of(settings.device, "rl.device")
        device_of(engine.device, "engine.device")
        _require_whole_gpus(settings, engine)
        return
    if settings.device == "cuda":
        _require_taken("rl.device", "cluster.trainer", cluster.trainer)
    if engine.device == "cuda":
        _require_taken("engine.device", "cluster.engine", cluster.engine)
        for name, region in settings.regions.items():
            _require_taken("engine.device", f"rl.regions.{name}.engine", region.engine)


def on_gpu(engine: EngineSettings) -> bool:
    """Whether an engine of a machine with GPUs takes one; vLLM's own build decides what it makes of it."""
    return engine.device == "cuda" or engine.kind == "vllm"


def processes_on_gpus(settings: RlSettings, engine: EngineSettings) -> int:
    """How many processes of a run on its own machine want a GPU."""
    far = sum(region.engines for region in settings.regions.values())
    engines = settings.engines + settings.standbys + far if on_gpu(engine) else 0
    return engines + (settings.trainer_ranks if settings.device == "cuda" else 0)


def gpu_share(processes: int, gpus: int) -> float:
    """What each process takes of a GPU when `processes` share `gpus`: 1 where there are enough, else one part of as few as it takes, for Ray puts no
    process on parts of two."""
    return 1.0 if processes <= gpus else 1.0 / -(-processes // gpus)


def _require_whole_gpus(settings: RlSettings, engine: EngineSettings) -> None:
    """NCCL has no two ranks on one GPU."""
    wanted, ranks = processes_on_gpus(settings, engine), settings.parallel.ranks
    if settings.device == "cuda" and ranks > 1 and wanted > (count := torch.cuda.device_count()):
        raise DeviceMissing(
            f'rl.device = "cuda" and rl.parallel has {ranks} ranks, each of which needs a GPU of its own: with the engines {wanted} processes want '
            f"one, and this machine has {count}; take fewer ranks or engines"
        )


def _require_taken(device: str, key: str, taken: Mapping[str, float]) -> None:
    if not taken.get("GPU"):
        raise ValueError(
            f'{device} = "cuda" with {key} = {dict(taken)}: Ray hides the GPUs from a process that takes none; set {key} = {{ GPU = 1 }}'
        )
