"""The rl stage on a Ray cluster of two machines, which are two raylets here; one of them, or the controller, dies in mid-run."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rl_lab import check_whole, lives, steps_trained, tiny_checkpoint, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

RAY = Path(sys.executable).with_name("ray")
STARTED = re.compile(rb"ray::EngineProcess|ray::engine-")


class Machines:
    """`ray start --block` twice, each a tree of processes that dies together; with a token of their own."""

    def __init__(self) -> None:
        self.temp = tempfile.mkdtemp(prefix="et-")
        self.environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.trees: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start(self) -> subprocess.Popen[bytes]:
        log = Path(self.temp, f"machine-{len(self.trees)}.log")
        first = not self.address
        where = ["--head", "--port=0", f"--temp-dir={self.temp}"] if first else [f"--address={self.address}"]
        words = [str(RAY), "start", "--block", *where, "--num-cpus=4"]
        words += ["--include-dashboard=false"] if first else []
        with open(log, "wb") as out:
            tree = subprocess.Popen(
                [*words, "--object-store-memory=100000000"],
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.trees.append(tree)
        deadline = time.monotonic() + 120
        while b"Ray runtime started" not in log.read_bytes():
            assert tree.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        if first:
            self.address = Path(self.temp, "ray_current_cluster").read_text().strip()
        return tree

    def kill(self, tree: subprocess.Popen[bytes]) -> None:
        """As a power cut does: raylet, workers and all at once."""
        for pid in (*below(tree.pid), tree.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        tree.wait()

    def close(self) -> None:
        for tree in self.trees:
            if tree.poll() is None:
                self.kill(tree)
        shutil.rmtree(self.temp, ignore_errors=True)


def below(root: int) -> list[int]:
    found = [int(pid) for pid in Path(f"/proc/{root}/task/{root}/children").read_text().split()]
    return found + [further for pid in found for further in below(pid)]


def engines(tree: subprocess.Popen[bytes]) -> list[int]:
    return [pid for pid in below(tree.pid) if STARTED.match(Path(f"/proc/{pid}/cmdline").read_bytes())]


def on_both(machines: Machines, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """A run with engines on both machines. Ray spreads as far as its view of the cluster is recent, so a busy host may need another start."""
    for _ in range(4):
        process = start()
        until(lambda: sum(len(engines(tree)) for tree in machines.trees) >= 3, process)
        if all(engines(tree) for tree in machines.trees):
            return process
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pytest.fail("engines on one machine only, in four starts")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def machines() -> Iterator[Machines]:
    both = Machines()
    try:
        both.start()
        both.start()
        yield both
    finally:
        both.close()


@pytest.fixture
def start(checkpoint, machines, tmp_path):
    with lives(checkpoint, tmp_path) as begun:

        def one_more(**changes):
            cluster = {"address": machines.address} | changes.pop("cluster", {})
            environment = machines.environment | changes.pop("environment", {})
            return begun(changes, cluster=cluster, env=environment)

        yield one_more


def test_a_machine_that_dies_costs_time_alone(machines, start, tmp_path):
    """Its engines come back on the other machine; the run is whole and leaves the cluster as it was."""
    folder = tmp_path / "rl"
    process = on_both(machines, lambda: start(engines=2, standbys=1))
    until(lambda: steps_trained(folder) >= 2, process)
    machines.kill(machines.trees[1])
    assert process.wait(timeout=400) == 0, Path(tmp_path / "driver-0.log").read_text()
    check_whole(folder)
    assert json.loads((folder / "summary.json").read_text())["times"]["restarts"] >= 1
    assert not engines(machines.trees[0]), "the run ends its own"
    assert machines.trees[0].poll() is None, "and no more"


def test_the_next_start_ends_what_a_killed_controller_left_on_the_cluster(machines, start, tmp_path):
    folder = tmp_path / "rl"
    process = start(engines=2)
    until(lambda: steps_trained(folder) >= 2, process)
    before = [pid for tree in machines.trees for pid in engines(tree)]
    assert len(before) == 2
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process = start(engines=2)
    assert process.wait(timeout=400) == 0, Path(tmp_path / "driver-1.log").read_text()
    check_whole(folder)
    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]


def test_a_run_whose_head_dies_says_so_and_goes_on_on_another_cluster(machines, start, tmp_path):
    folder = tmp_path / "rl"
    process = start()
    until(lambda: steps_trained(folder) >= 1, process)
    machines.kill(machines.trees[0])
    assert process.wait(timeout=200) == 1
    assert "head of the cluster" in (tmp_path / "driver-0.log").read_text()
    machines.address = ""
    machines.start()
    assert start().wait(timeout=400) == 0, (tmp_path / "driver-1.log").read_text()
    check_whole(folder)


def test_what_a_cluster_cannot_do_is_said_before_the_run_begins(machines, start, tmp_path):
    wrong = {
        "room for 0, and the run wants 1": start(cluster={"engine": {"GPU": 1}}),
        "is its token here too": start(environment={"RAY_AUTH_TOKEN": "0" * 64}),
    }
    for number, (words, process) in enumerate(wrong.items()):
        assert process.wait(timeout=200) == 1
        said = (tmp_path / f"driver-{number}.log").read_text()
        assert "ClusterError" in said and words in said, said
    assert not (tmp_path / "rl" / "ledger.jsonl").exists()
