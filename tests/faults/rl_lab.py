"""A small real run of the rl stage in a process of its own, for tests that kill it and its parts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.rl.ledger import RlLedger, fold
from etude.rl.steps import read

STEPS, GROUPS = 5, 2

SETTINGS = {
    "steps": STEPS,
    "groups_per_step": GROUPS,
    "group_size": 3,
    "slots": 6,
    "save_every": 2,
    "solvable_tasks": 0,
}
# A process of its own, so that it can be killed. Arguments: checkpoint, folder, and as JSON settings, those of a cluster and of the engine.
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
        HarnessSettings(max_turns=3, max_tokens_per_turn=16),
        EngineSettings.model_validate_json(sys.argv[5]),
        SandboxSettings(),
        EventLogObserver(EventLog(folder / "events.jsonl")),
        cluster=ClusterSettings.model_validate_json(sys.argv[4]),
    )
)
"""


def tiny_checkpoint(folder: Path) -> Path:
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = new_model(ModelSettings(hidden_size=32, layers=2, heads=2, experts=4), tokenizer.get_vocab_size())
    save_checkpoint(model, folder / "model", folder)
    return folder / "model"


def begin(
    checkpoint: Path,
    folder: Path,
    log: Path,
    changes: dict[str, Any],
    cluster: dict[str, Any] | None = None,
    prelude: str = "",
    engine: dict[str, Any] | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """The run, with `changes` to SETTINGS; what it prints goes to `log`. `prelude`: Python that its process runs first."""
    settings = [json.dumps(SETTINGS | changes), json.dumps(cluster or {}), json.dumps(engine or {})]
    arguments = [sys.executable, "-c", prelude + DRIVER, str(checkpoint), str(folder), *settings]
    with open(log, "wb") as out:
        return subprocess.Popen(
            arguments, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=hear_ctrl_c, **options
        )


@contextmanager
def lives(checkpoint: Path, folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Begins the run in `folder`/rl, as often as it is called (logs `driver-0.log`, ...); none is left alive at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def one_more(changes: dict[str, Any], **more: Any) -> subprocess.Popen[bytes]:
        log = folder / f"driver-{len(started)}.log"
        started.append(begin(checkpoint, folder / "rl", log, changes, **more))
        return started[-1]

    yield one_more
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def hear_ctrl_c() -> None:
    """As in a terminal: where the tests run as a shell's background job, their children would inherit SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def steps_trained(folder: Path) -> int:
    path = folder / "ledger.jsonl"
    return path.read_bytes().count(b'"kind": "trained"') if path.exists() else 0


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run makes no progress"
        time.sleep(0.02)


def check_whole(folder: Path, steps: int = STEPS) -> None:
    progress = fold(RlLedger(folder / "ledger.jsonl").entries)
    groups = [group for step in range(steps) for group in progress.batches[step]]
    assert sorted(groups) == list(range(steps * GROUPS)), "every group is trained once"
    assert [record.step for record in read(folder / "steps.jsonl")] == list(range(steps))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["staleness"]["max"] <= 2 and summary["mismatch"]["k3"] <= 1e-9
    assert load_checkpoint(folder / "checkpoint") is not None
    assert not (folder / "ray.json").exists()
