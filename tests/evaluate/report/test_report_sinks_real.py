"""What the follower sends arrives at the real trackers, offline; where a package is not installed only the recorder of
`test_report_sinks.py` speaks for it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from etude.core.events.log import EventLog

pytestmark = pytest.mark.nightly
STEPS = 5
SEND = """
import sys, time
from pathlib import Path
from etude.evaluate.report.sinks.follow import MetricsFollower, opening
from etude.evaluate.report.sinks.package import open_sink
run, kind = Path(sys.argv[1]), sys.argv[2]
sink = open_sink(kind, opening(run, "etude", ""))
MetricsFollower(run, kind, sink, wait=time.sleep).poll()
sink.close()
"""
BLOCK, HEADER = 32768, 7  # of LevelDB's log format, which wandb's offline files have (after seven bytes of their own)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two stages that each count their steps from the start."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_text('[run]\nname = "laptop"\n[rl]\nsteps = 4\n')
    events = EventLog(folder / "events.jsonl", clock=lambda: 1.0)
    for stage in ("sft", "rl"):
        for step in range(STEPS):
            events.metric(stage, step, value=step / 4, drift=float("nan"))
    events.close()
    return folder


def send(run: Path, kind: str, **environment: str) -> None:
    """From a process of its own, as the command does."""
    if find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    given = os.environ | environment
    done = subprocess.run(
        [sys.executable, "-c", SEND, str(run), kind], cwd=run, env=given, capture_output=True, timeout=110
    )
    assert done.returncode == 0, done.stderr.decode()


def test_trackio_has_every_step_of_every_stage(run: Path) -> None:
    send(run, "trackio", TRACKIO_DIR=str(run / "trackio"))
    with sqlite3.connect(run / "trackio" / "etude.db") as base:
        rows = [
            (step, json.loads(values)) for step, values in base.execute("select step, metrics from metrics order by id")
        ]
        (config,) = base.execute("select config from configs").fetchone()
    expected = [(n, {f"{stage}/value": n / 4, f"{stage}/step": n}) for stage in ("sft", "rl") for n in range(STEPS)]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
    assert json.loads(config)["rl.steps"] == 4


def test_wandb_has_every_step_and_draws_each_stage_over_its_own(run: Path) -> None:
    send(run, "wandb", WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(run))
    from wandb.proto import wandb_internal_pb2  # type: ignore[import-not-found]

    (path,) = run.glob("wandb/offline-run-*/run-*.wandb")
    history, axes = [], {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            history.append({name: value for name, value in row.items() if "/" in name})
        if record.WhichOneof("record_type") == "metric":
            axes[record.metric.glob_name or record.metric.name] = record.metric.step_metric
    assert history == [{f"{stage}/value": n / 4, f"{stage}/step": n} for stage in ("sft", "rl") for n in range(STEPS)]
    assert axes["rl/*"] == "rl/step" and axes["sft/*"] == "sft/step"


def records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log: a record is whole (1) or in parts (2 first, 3 middle, 4 last); a block ends in blanks where no header fits."""
    at, parts = HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + HEADER : at + HEADER + size]
        at += HEADER + size
        if kind in (1, 4):
            yield parts
            parts = b""
