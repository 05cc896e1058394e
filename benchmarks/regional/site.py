"""What runs at either end of the link: at home a Ray head, an S3 server with the run's store, the run; far away a Ray node, another S3 server and
the relay. The region's node does not see the run's folder: an empty one is mounted over it there."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from regional.link import FAR, HOME, Link, linked

REPOSITORY = Path(__file__).resolve().parents[2]
RAY = Path(sys.executable).with_name("ray")
ETUDE = [sys.executable, "-c", "from etude.cli.main import main; main()"]
PORT = 6379
# The region's node is started again whenever it ends, as a service manager would: Ray ends a node that its head has given up.
AGAIN = "mount -t tmpfs none {hidden} && while :; do {ray}; sleep 2; done"
DRIVER = """
import sys
from pathlib import Path
from etude.learn.engine.settings import EngineSettings
from etude.core.events.log import EventLog
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.agent.harness.settings import HarnessSettings
from etude.rl.observer import EventLogObserver
from etude.rl.run import run_rl
from etude.rl.run_context import RunContext
from etude.rl.settings import ClusterSettings, RlSettings
from etude.sandbox.settings import SandboxSettings

checkpoint, folder = map(Path, sys.argv[1:3])
run_rl(
    RunContext(
        RlSettings.model_validate_json(sys.argv[3]),
        checkpoint,
        folder,
        ExerciseSource(ExerciseSettings()),
        HarnessSettings.model_validate_json(sys.argv[5]),
        EngineSettings(),
        SandboxSettings(),
        EventLogObserver(EventLog(folder / "events.jsonl")),
        cluster=ClusterSettings.model_validate_json(sys.argv[4]),
    )
)
"""


class Site:
    """`folder`: rl/ is the run's, everything else is logs and stores."""

    def __init__(self, link: Link, folder: Path, environment: dict[str, str]) -> None:
        self.link, self.folder, self.environment = link, folder, environment
        self.temp = tempfile.mkdtemp(prefix="er-")  # sockets in it: their paths have to be short
        self.started: list[subprocess.Popen[bytes]] = []
        self.home_store = f"s3://bucket/run?endpoint=http://{HOME}:9000"
        self.far_store = f"s3://bucket/far?endpoint=http://{FAR}:9000"

    @property
    def cluster(self) -> dict[str, Any]:
        return {"address": f"{HOME}:{PORT}", "engine": {"home": 1}}

    @property
    def settings(self) -> dict[str, Any]:
        """What a run's settings need to have a region here."""
        return {"weight_store": self.home_store, "regions": {"far": {"store": self.far_store, "engine": {"far": 1}}}}

    def start_home(self) -> None:
        words = ["start", "--block", "--head", f"--port={PORT}", f"--node-ip-address={HOME}", f"--temp-dir={self.temp}"]
        words += [
            "--include-dashboard=false",
            "--num-cpus=4",
            '--resources={"home": 8}',
            "--object-store-memory=100000000",
        ]
        self.start("head", [*self.link.home, str(RAY), *words])
        self.wait_for("head", "Ray runtime started")

    def start_far(self) -> None:
        ray = [str(RAY), "start", "--block", f"--address={HOME}:{PORT}", f"--node-ip-address={FAR}", "--num-cpus=4"]
        ray += ["""'--resources={"far": 8}'""", "--object-store-memory=100000000"]
        script = AGAIN.format(hidden=self.folder / "rl", ray=" ".join(ray))
        self.start("far", [*self.link.far, "unshare", "-m", "sh", "-c", script])
        self.wait_for("far", "Ray runtime started")

    def start_relay(self) -> subprocess.Popen[bytes]:
        words = [*ETUDE, "weights", "relay", self.home_store, self.far_store, "--follow", "--json"]
        return self.start("relay", [*self.link.far, *words])

    def start_run(self, checkpoint: Path, settings: dict[str, Any], harness: dict[str, Any]) -> subprocess.Popen[bytes]:
        arguments = [json.dumps(settings | self.settings), json.dumps(self.cluster), json.dumps(harness)]
        words = [sys.executable, "-c", DRIVER, str(checkpoint), str(self.folder / "rl"), *arguments]
        return self.start("run", [*self.link.home, *words])

    def start(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        self.started.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def relayed(self) -> list[dict[str, Any]]:
        """The relay's events."""
        return [json.loads(line) for line in self.log("relay").splitlines() if line.startswith("{")]

    def wait_for(self, name: str, words: str, limit_s: float = 180) -> None:
        deadline = time.monotonic() + limit_s
        while words not in self.log(name):
            if time.monotonic() > deadline or self.started[-1].poll() is not None:
                raise RuntimeError(f"{name} does not come up: {self.log(name)[-2000:]}")
            time.sleep(0.1)

    def close(self) -> None:
        for process in reversed(self.started):
            for pid in (*below(process.pid), process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()
        shutil.rmtree(self.temp, ignore_errors=True)


def below(root: int) -> list[int]:
    try:
        found = [int(pid) for pid in Path(f"/proc/{root}/task/{root}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return found + [further for pid in found for further in below(pid)]


@contextmanager
def two_regions(folder: Path) -> Iterator[Site]:
    """All up but the run itself; nothing is left of it at the end. `folder` is to be new."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "learn" / "weights"))
    from s3_lab import serving

    (folder / "rl").mkdir(parents=True)
    with ExitStack() as stack:
        link = stack.enter_context(linked(folder / "link"))
        stack.enter_context(serving(folder / "s3-far", link.far, FAR))
        home = stack.enter_context(serving(folder / "s3-home", link.home, HOME))
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
        own |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY / "src")}
        site = Site(link, folder, os.environ | home.environment | own)
        stack.callback(site.close)
        site.start_home()
        site.start_far()
        site.start_relay()
        yield site
