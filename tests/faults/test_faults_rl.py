"""The rl stage as a person runs it, on a real local Ray with a tiny random model, killed in real ways (promises 5, 6, 8)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rl_lab import SETTINGS, check_whole, lives, steps_trained, tiny_checkpoint, until

from etude.agent.harness.settings import HarnessSettings
from etude.learn.train.gloo_ranks import GlooRanks, Rendezvous
from etude.rl.learner import Learner
from etude.rl.ledger import RlLedger, fold
from etude.rl.local_ray import sweep
from etude.rl.settings import RlSettings

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def start(checkpoint, tmp_path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    with lives(checkpoint, tmp_path) as begun:
        yield lambda **changes: begun(changes)
    sweep(tmp_path / "rl" / "ray.json")


def recorded(folder: Path) -> dict[str, int]:
    """The processes of the run, once it wrote them down; between two runs there are none."""
    try:
        return json.loads((folder / "ray.json").read_text())["processes"]
    except FileNotFoundError:
        return {}


def alive(processes: dict[str, int]) -> list[str]:
    """Those of the recorded processes that still run (same id, same start time)."""
    left = []
    for pid, started in processes.items():
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] != "Z" and int(fields[19]) == started:
                left.append(f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes()[:80]!r}")
    return left


def test_sigkill_at_any_step_then_run_again_goes_on_exactly(start, tmp_path):
    folder = tmp_path / "rl"
    for steps in (1, 3):
        process = start()
        until(lambda n=steps: steps_trained(folder) >= n, process)
        processes = recorded(folder)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process = start()
    until(lambda: recorded(folder) not in ({}, processes), process)
    assert not alive(processes), "the next start ends what the killed one left"
    processes = recorded(folder)
    assert process.wait(timeout=400) == 0
    check_whole(folder)
    assert not alive(processes)


@pytest.mark.parametrize("title", ["ray::EngineProcess", "ray::TrainerProcess"])
def test_a_killed_actor_comes_back_and_the_run_is_whole(start, tmp_path, title):
    folder = tmp_path / "rl"
    process = start()
    until(lambda: steps_trained(folder) >= 2, process)
    victims = [pid for pid in recorded(folder) if title.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(victims) == 1
    os.kill(int(victims[0]), signal.SIGKILL)
    assert process.wait(timeout=400) == 0
    check_whole(folder)
    assert json.loads((folder / "summary.json").read_text())["times"]["restarts"] == 1


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_a_rank_that_dies_or_hangs_costs_time_alone(start, tmp_path, checkpoint, blow):
    """Both ranks end and begin again; every step reaches the digest of two undisturbed ranks (promise 6)."""
    folder, two = tmp_path / "rl", {"ranks": 2, "rank_silence_s": 10}
    process = start(**two)
    until(lambda: steps_trained(folder) >= 3, process)  # one step behind the checkpoint
    ranks = [pid for pid in recorded(folder) if b"ray::TrainerProcess" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(ranks) == 2
    held = {pid: recorded(folder)[pid] for pid in ranks}
    os.kill(int(ranks[1]), blow)
    until(lambda: not alive(held), process)  # also the one that can't end itself
    assert process.wait(timeout=400) == 0
    check_whole(folder)
    assert json.loads((folder / "summary.json").read_text())["times"]["restarts"] == 1
    progress = fold(RlLedger(folder / "ledger.jsonl").entries)
    assert undisturbed(checkpoint, folder, tmp_path / "again", two, progress.batches) == progress.digests


def undisturbed(checkpoint: Path, trained: Path, folder: Path, changes: dict, batches: dict) -> dict[int, str]:
    """The digest after each step of the same batches, trained by two ranks that are threads."""
    shutil.copytree(trained / "groups", folder / "groups")
    plain = RlSettings.model_validate(SETTINGS | changes)
    update = plain.update.model_copy(update={"temperature": HarnessSettings().temperature})
    settings, meeting = plain.model_copy(update={"update": update}), Rendezvous("127.0.0.1")

    def train(rank: int) -> dict[int, str]:
        ranks = GlooRanks(meeting.address, "127.0.0.1", rank, 2, 60)
        learner = Learner(checkpoint, folder, settings, settings.threads, ranks)
        return {step: learner.train(batches[step]).digest for step in sorted(batches)}

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(train, range(2))
    assert first == second
    return first


def test_ctrl_c_ends_everything_and_run_again_goes_on(start, tmp_path):
    folder = tmp_path / "rl"
    process = start()
    until(lambda: steps_trained(folder) >= 1, process)
    processes = recorded(folder)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) != 0
    assert not alive(processes) and not (folder / "ray.json").exists()
    assert start().wait(timeout=400) == 0
    check_whole(folder)
