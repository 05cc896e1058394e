"""RL and the supervised stages compute on the device that is asked for, with the results of the CPU.

Every machine runs this on a pretended device (`pretend_device.py`): no tensor of the CPU mixes in, and the branches are those taken off
the CPU. A machine with a GPU runs it there too, with the rounding of real kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.learn.engine.settings import EngineSettings
from etude.learn.model.device import DeviceMissing, compute_reproducibly, device_of
from etude.rl.devices import check_devices, gpu_share, processes_on_gpus
from etude.rl.settings import ClusterSettings, RlSettings

HERE = Path(__file__).parent
_SLOW = ("resume", "two_ranks", "draft_lessons")
PIECES = (
    "policy_step",
    "sampling",
    "fine_tuning",
    "shared_context",
    *(pytest.param(one, marks=pytest.mark.nightly) for one in _SLOW),
)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that PyTorch can use")


def computed(what: str, device: str) -> Any:
    labs = os.pathsep.join(str(HERE.parent / folder) for folder in ("devices", "learn/train", "learn/engine"))
    command = [sys.executable, str(HERE / "computing.py"), what, device]
    path = os.pathsep.join(filter(None, (labs, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_alike(one: Any, other: Any, where: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_alike(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_alike(a, b, f"{where}/{place}")
    else:
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5), where


@pytest.mark.sample(1)
@pytest.mark.parametrize("device", ["pretend", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("what", PIECES)
def test_results_off_the_cpu_equal_those_of_the_cpu(what: str, device: str) -> None:
    found = computed(what, device)
    assert_alike(found["cpu"], found["other"], what)
    if what in ("resume", "two_ranks", "fine_tuning"):
        assert found["cpu"]["same"] and found["other"]["same"], "other bits after a checkpoint, or on another rank"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_anything_starts() -> None:
    with pytest.raises(DeviceMissing, match=r'rl\.device = "cuda".*finds no GPU in this process'):
        check_devices(RlSettings(device="cuda"), EngineSettings(), ClusterSettings())
    with pytest.raises(DeviceMissing, match=r'engine\.device = "cuda"'):
        check_devices(RlSettings(), EngineSettings(device="cuda"), ClusterSettings())
    check_devices(RlSettings(), EngineSettings(), ClusterSettings())


def test_on_a_cluster_a_process_on_a_gpu_has_to_take_one() -> None:
    with pytest.raises(ValueError, match=r"set cluster\.trainer = \{ GPU = 1 \}"):
        check_devices(RlSettings(device="cuda"), EngineSettings(), ClusterSettings(address="10.0.0.1:6379"))
    taking = ClusterSettings(address="10.0.0.1:6379", trainer={"GPU": 1}, engine={"GPU": 1})
    check_devices(RlSettings(device="cuda"), EngineSettings(device="cuda"), taking)
    region = {"far": {"store": "s3://bucket/far", "engine": {"far": 1}}}
    with pytest.raises(ValueError, match=r"rl\.regions\.far\.engine"):
        check_devices(RlSettings.model_validate({"regions": region}), EngineSettings(device="cuda"), taking)


def test_ranks_that_share_a_model_take_a_whole_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    split = RlSettings.model_validate({"device": "cuda", "parallel": {"shard": 4}})
    check_devices(split, EngineSettings(), ClusterSettings())
    with pytest.raises(DeviceMissing, match=r"has 4 ranks, .* 5 processes want one, and this machine has 4"):
        check_devices(split, EngineSettings(device="cuda"), ClusterSettings())
    check_devices(RlSettings(device="cuda", ranks=4), EngineSettings(device="cuda"), ClusterSettings())  # may share


def test_vllm_says_itself_where_it_computes() -> None:
    with pytest.raises(ValueError, match="its own build says where it computes"):
        EngineSettings.model_validate({"kind": "vllm", "vllm": {"python": "/usr/bin/python3"}, "device": "cuda"})


@pytest.mark.parametrize(
    ("processes", "gpus", "each"), [(1, 1, 1.0), (2, 1, 0.5), (3, 2, 0.5), (3, 8, 1.0), (5, 2, 1 / 3)]
)
def test_processes_of_one_machine_share_its_gpus(processes: int, gpus: int, each: float) -> None:
    assert gpu_share(processes, gpus) == pytest.approx(each)
    assert gpus * int(1 / gpu_share(processes, gpus) + 1e-9) >= processes, "all fit, none over two"


def test_who_wants_a_gpu_is_counted() -> None:
    many = RlSettings(engines=2, standbys=1, ranks=2, device="cuda")
    assert processes_on_gpus(many, EngineSettings()) == 2
    assert processes_on_gpus(many, EngineSettings(device="cuda")) == 5
    assert processes_on_gpus(RlSettings(), EngineSettings()) == 0


def test_a_cpu_is_reproducible_without_being_asked() -> None:
    compute_reproducibly(device_of("cpu", "rl.device"))
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_ray_is_asked_for_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.rl import placement
    from etude.rl.local_ray import LocalRay

    def asked(engine: EngineSettings, gpus: int) -> list[Any]:
        monkeypatch.setattr(placement.ray, "cluster_resources", lambda: {"GPU": float(gpus)})
        places = placement.RayPlaces(
            tmp_path, tmp_path, RlSettings(device="cuda"), engine, ClusterSettings(), LocalRay(tmp_path / "ray.json")
        )
        return [places._options(what, {}, "SPREAD").get("num_gpus") for what in ("engine", "trainer")]

    vllm = EngineSettings.model_validate({"kind": "vllm", "vllm": {"python": "/usr/bin/python3"}})
    assert asked(EngineSettings(), 1) == [None, 1.0]
    assert asked(EngineSettings(device="cuda"), 1) == asked(vllm, 1) == [0.5, 0.5]
    assert asked(vllm, 2) == [1.0, 1.0]
    assert asked(vllm, 0)[0] is None, "vLLM's CPU build"
