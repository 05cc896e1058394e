"""`etude run` whole, in small, SIGKILLed at random moments inside every stage and run again until it is done.

Weights of base and SFT are bit-equal to those of a run that was not killed, the sessions that SFT learns from are equal
too; RL trains the same task list, every group once; the bench asks every question once; nothing is left running.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.core.trace.reader import read_session
from etude.learn.model.checkpoint import load_checkpoint
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.graph import names
from etude.rl.ledger import RlLedger, fold
from etude.rl.local_ray import sweep

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

# RL starts from the committed checkpoint: what a tiny model samples solves nothing, and then there is nothing to compare.
CHECKPOINT = Path(__file__).parents[3] / "checkpoints" / "sft-nano"
RECIPE = f"""
[run]
name = "tiny"
sft_checkpoint = "{CHECKPOINT}"
[model]
family = "qwen3_moe"
hidden_size = 32
layers = 2
heads = 2
kv_heads = 1
head_dim = 16
dense_intermediate = 48
moe_intermediate = 16
experts = 4
[corpus]
fim_rate = 0.5
lookup_tokens = 512
exercise_documents = 60
[corpus.sources.stdlib]
kind = "stdlib"
packages = ["bisect", "cmd", "colorsys", "fnmatch", "getopt", "glob", "sched", "shlex"]
[pretrain.base.loop]
steps = 30
checkpoint_every = 3
[pretrain.short.loop]
steps = 20
checkpoint_every = 3
[pretrain.long.loop]
steps = 6
checkpoint_every = 3
[mtp.loop]
steps = 6
checkpoint_every = 3
[sessions]
count = 60
[sft]
epochs = 50
[sft.loop]
steps = 30
checkpoint_every = 3
[rl]
solvable_tasks = 2
steps = 4
groups_per_step = 2
group_size = 4
slots = 8
save_every = 2
[bench]
tasks = 8
tasks_per_level_min = 1
tasks_discovery_min = 1
passes = 2
passes_discovery = 2
passes_base = 1
passes_scripted = 1
passes_controls = 1
concurrency = 8
"""
# One start is seconds of imports; a stage that never seems to end has hung.
LIMIT_S = 600


def hear_ctrl_c() -> None:
    """As in a terminal: where the tests run as a shell's background job, their children would inherit SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Life:
    """One start of `etude run` on a folder, in a session of its own so that all of it can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        recipe = folder.parent / "tiny.toml"
        recipe.write_text(RECIPE)
        main = "from etude.cli.main import main; main()"
        words = [sys.executable, "-c", main, "run", str(recipe), "--out", str(folder)]
        self.log = open(folder.parent / f"{folder.name}.log", "ab")
        marked = os.environ | {"ETUDE_TEST_RUN": str(folder)}  # every child carries it, so that a survivor is found
        self.process = subprocess.Popen(
            words,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=marked,
            preexec_fn=hear_ctrl_c,
        )

    def whole(self) -> None:
        code = self.process.wait(timeout=LIMIT_S)
        assert code == 0, (self.folder.parent / f"{self.folder.name}.log").read_text()[-3000:]

    def kill_in(self, stage: str, after_s: float) -> None:
        """SIGKILL the run so long after the stage was started; a run that is done before that was no less whole."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None and not started(self.folder, stage):
            assert time.monotonic() < deadline, f"{stage} is not reached"
            time.sleep(0.02)
        try:
            self.process.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the main process alone: its children have to notice
            self.process.wait()
        self.log.close()


def events(folder: Path) -> list[dict]:
    path = folder / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def started(folder: Path, stage: str) -> bool:
    return any(event["event"] == "started" and event["stage"] == stage for event in events(folder))


def seconds(folder: Path) -> dict[str, float]:
    return {stage: cost["seconds"] for stage, cost in json.loads((folder / "stages.json").read_text()).items()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "run"
    Life(folder).whole()
    return folder


@pytest.fixture(scope="module")
def survivor(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed once inside every stage, at moments of this test's own drawing (printed, for who has to look)."""
    seed = time.time_ns() % 1000
    print(f"seed {seed}")
    draw = random.Random(seed)
    folder = tmp_path_factory.mktemp("survivor") / "run"
    took = seconds(reference)
    try:
        for stage in names():
            if stage in took:
                moment = draw.random() * took[stage]
                print(f"killing {moment:.1f} s into {stage} (of {took[stage]:.1f} s)")
                Life(folder).kill_in(stage, moment)
        Life(folder).whole()
    finally:
        sweep(folder / "rl" / "ray.json")
    return folder


def checkpoints(run: Path) -> dict[str, bytes]:
    """The weight files that are promised bit by bit: what is trained before RL."""
    found = [p for p in run.glob("**/checkpoint/*.safetensors") if p.relative_to(run).parts[0] not in AFTER_RL]
    return {str(p.relative_to(run)): p.read_bytes() for p in found}


AFTER_RL = {"rl", "attempts", "rewarded_sft"}  # made of rollouts, whose order in time no seed fixes


def demonstrations(run: Path) -> dict[str, list]:
    """Every session's tokens and words, times left aside."""
    folder = next(p for p in (run / "sessions", run / "sft" / "sessions") if p.is_dir())
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        entries = read_session(path).entries
        data = [{k: v for k, v in e.data.items() if k not in ("usage", "seconds")} for e in entries]
        found[path.name] = [(e.type, e.tokens.ids if e.tokens else None, d) for e, d in zip(entries, data, strict=True)]
    return found


def test_weights_trained_before_rl_are_bit_equal(reference: Path, survivor: Path) -> None:
    expected = checkpoints(reference)
    assert {path.split("/")[0] for path in expected} >= {"base", "sft"}
    assert checkpoints(survivor).keys() == expected.keys()
    different = [path for path, data in checkpoints(survivor).items() if data != expected[path]]
    assert different == []


def test_sessions_are_the_same_and_none_is_torn(reference: Path, survivor: Path) -> None:
    found = demonstrations(survivor)
    assert found == demonstrations(reference) and len(found) == read_recipe([survivor / "recipe.toml"]).sessions.count
    assert all(entries[-1][0] == "end" for entries in found.values())


def test_rl_trained_the_same_task_list_every_group_once(reference: Path, survivor: Path) -> None:
    progresses = [fold(RlLedger(run / "rl" / "ledger.jsonl").entries) for run in (reference, survivor)]
    assert progresses[0].plan == progresses[1].plan, "the digest of the task list"
    for progress in progresses:
        assert sorted(group for batch in progress.batches.values() for group in batch) == list(range(8))
    assert load_checkpoint(survivor / "rl" / "checkpoint") is not None
    summary = json.loads((survivor / "rl" / "summary.json").read_text())
    assert summary["steps"] == 4 and summary["mismatch"]["k3"] <= 1e-9 and summary["staleness"]["max"] <= 2
    kept = list((survivor / "rl" / "sessions").rglob("*.jsonl"))
    assert len(kept) == 4 * 4 and all(read_session(path).of("verdict") for path in kept)


def test_every_bench_question_is_asked_once_and_the_report_is_whole(reference: Path, survivor: Path) -> None:
    asked = [questions(run / "trials") | questions(run / "bench") for run in (reference, survivor)]
    assert asked[0] == asked[1] and {"base", "sft", "rl", "expert"} <= asked[0].keys()
    reports = [json.loads((run / "report.json").read_text()) for run in (reference, survivor)]
    assert reports[1].keys() == reports[0].keys() and reports[1]["bench"].keys() == reports[0]["bench"].keys()
    assert (survivor / "report.html").is_file()
    finished = [event["stage"] for event in events(survivor) if event["event"] == "finished"]
    assert sorted(set(finished) - {"report"}) == sorted(stage for stage in finished if stage != "report")


def questions(bench: Path) -> dict[str, list[tuple[str, int]]]:
    found = {}
    for path in sorted(bench.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.stem] = sorted((row["task_id"], row["attempt"]) for row in rows)
        assert len(set(found[path.stem])) == len(rows), f"{path.stem} was asked something twice"
    return found


def test_nothing_is_left_running(survivor: Path) -> None:
    """No process carries the run's mark: stages, Ray, engine, trainer, sandboxes' keepers."""
    assert left_running(survivor.parent) == []


def left_running(folder: Path) -> list[str]:
    """What still mentions the folder after some seconds: Python's and Ray's keepers end when their pipes close."""
    deadline = time.monotonic() + 20
    while (left := mentioning(str(folder))) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def mentioning(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:  # it ended meanwhile, or is another user's
                continue
            if re.search(re.escape(text.encode()), words):
                found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()[:100]!r}")
    return found


def test_ctrl_c_stops_at_once_and_leaves_nothing_running(tmp_path: Path) -> None:
    life = Life(tmp_path / "run")
    deadline = time.monotonic() + LIMIT_S
    while not started(life.folder, "base"):
        assert life.process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(life.process.pid, signal.SIGINT)
    assert life.process.wait(timeout=60) == 130
    assert left_running(tmp_path) == []
