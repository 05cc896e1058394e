"""Ranks that torchrun starts train the stages of one command, end with it, and go on after a death."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launched_lab import LAYOUTS, STEPS, train

from etude.learn.parallel.launched import LaunchedWorld, NoLauncher, _read, address_towards, interface_of

HERE = Path(__file__).parent


def torchrun(*arguments: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "learn" / "train")])
    command = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
    ]
    command += ["--max-restarts", str(restarts)]
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *command, str(HERE / "launched_lab.py"), *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)


def weights(folder: Path, stage: str) -> dict[str, torch.Tensor]:
    return torch.load(folder / stage / "weights.pt", weights_only=True)


def test_torchruns_ranks_train_each_stage_to_the_weights_of_one_process_and_end(tmp_path: Path) -> None:
    done = torchrun(tmp_path / "ranks", STEPS)
    assert done.returncode == 0 and "followed 2 stages" in done.stdout, done.stderr[-3000:]
    train(tmp_path / "one", dict.fromkeys(LAYOUTS, {}), STEPS)
    for stage in LAYOUTS:
        assert not list((tmp_path / "ranks" / stage).glob("*.pickle"))
        alone, split = weights(tmp_path / "one", stage), weights(tmp_path / "ranks", stage)
        assert all(torch.allclose(split[name], tensor, rtol=0, atol=2e-4) for name, tensor in alone.items())


@pytest.mark.nightly
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_rank_that_dies_ends_them_all_and_the_same_command_or_torchrun_goes_on_to_the_bit(
    restarts: int, tmp_path: Path
) -> None:
    assert torchrun(tmp_path / "whole", STEPS).returncode == 0
    died = torchrun(tmp_path / "died", STEPS, 2, restarts=restarts)
    assert (died.returncode == 0) == bool(restarts)
    if not restarts:
        assert "lost another one" in died.stderr, died.stderr[-3000:]
        assert not (tmp_path / "died" / "first" / "weights.pt").exists()
        assert torchrun(tmp_path / "died", STEPS).returncode == 0
    assert "going on after step 2" in (tmp_path / "died" / "first" / "events.jsonl").read_text()
    for stage in LAYOUTS:
        whole, again = weights(tmp_path / "whole", stage), weights(tmp_path / "died", stage)
        assert all(torch.equal(again[name], tensor) for name, tensor in whole.items())


def test_a_world_is_read_from_what_torchrun_sets() -> None:
    set_by_torchrun = {
        "WORLD_SIZE": "4", "RANK": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "1",
    }  # fmt: skip
    assert LaunchedWorld.find(set_by_torchrun) == LaunchedWorld(3, 4, "10.0.0.1:29500", "1", 2, 1)
    assert LaunchedWorld.find({}) is None and LaunchedWorld.find({"WORLD_SIZE": "1"}) is None
    with pytest.raises(NoLauncher, match="WORLD_SIZE is 4, and torchrun did not start this process"):
        LaunchedWorld.find({"WORLD_SIZE": "4", "RANK": "0"})


def test_the_interface_of_an_address_is_found_and_another_address_is_refused() -> None:
    assert interface_of("127.0.0.1") == "lo"
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert address_towards(f"localhost:{server.getsockname()[1]}") == "127.0.0.1"
    with pytest.raises(
        ValueError, match=r"no network interface has the address 192\.0\.2\.1; name one in GLOO_SOCKET_IFNAME"
    ):
        interface_of("192.0.2.1")


def test_work_that_the_first_rank_did_not_write_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "ranks-1.pickle"
    file.write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(
        ValueError, match="is not what the first rank wrote: all machines have to see the same run's folder"
    ):
        _read(str(file), "0" * 64)
