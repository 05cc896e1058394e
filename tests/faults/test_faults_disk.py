"""A full disk in each writer of a run: it is an error and never a file that reads as whole, and once there is room the same
call completes. A limit on file size replaces a full disk: the kernel takes a part of the data, then refuses.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.reader import read_session
from etude.core.trace.segment import Rollout, Segment
from etude.core.trace.session import Recorder
from etude.core.trace.writer import SessionWriter, write_session
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.learn.corpus.shards import TokenShards, write_shards
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.stage import write_json
from etude.rl import steps
from etude.rl.ledger import RlLedger
from etude.rl.store import GroupStore

NOTHING = "nothing"


@dataclass(frozen=True)
class Writer:
    """`prepare` makes the earlier state, `write` may meet the full disk, `read` tells what a later program finds."""

    prepare: Callable[[Path], None]
    write: Callable[[Path], None]
    read: Callable[[Path], Any]


def rollout(text: str) -> Rollout:
    ids = np.random.default_rng(0).integers(0, 800, 4000).astype(np.int32)
    segment = Segment(ids, ids > 100, np.zeros(4000, np.float32), np.zeros(4000, np.int32))
    return Rollout(text, "task", 0, [segment])


def outcome(number: int) -> Outcome:
    return Outcome("task", number, "debugging", "one-bug", 1.0, 10, 2, 3, 0.5, "because " * 40)


def record(recorder: Recorder) -> Recorder:
    for number in range(20):
        recorder.append("message", {"text": f"{number}"}, tokens=EntryTokens([number] * 30, 30))
    recorder.append("end", {"reason": "done"})
    recorder.close()
    return recorder


def new_session(path: Path) -> None:
    """As the factory does: whatever an earlier try left is removed."""
    for suffix in (".jsonl", ".tokens", ".routes"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    record(SessionWriter(path, SessionHeader("s"), every="end"))


def session(path: Path) -> Any:
    if not path.is_file() or b"\n" not in path.read_bytes():
        return NOTHING
    found = read_session(path).entries
    return "whole" if found and found[-1].type == "end" else NOTHING  # a torn one is made again


def step(number: int) -> steps.StepRecord:
    return steps.StepRecord(number, [1, 2], {"reward": 0.5}, {"0": 3}, [{"outcome": 1.0}] * 30, [0.1] * 30)


def to_ledger(folder: Path, kind: str) -> None:
    ledger = RlLedger(folder / "ledger.jsonl")
    try:
        ledger.write(kind, step=1, digest="x" * 200)
    finally:
        ledger.close()


def trained(folder: Path, seed: int) -> None:
    settings = ModelSettings(hidden_size=16, layers=1, heads=2, experts=2, dense_intermediate=16, seed=seed)
    byte_tokenizer().save(str(folder / "tokenizer.json")) if not (folder / "tokenizer.json").is_file() else None
    save_checkpoint(new_model(settings, 300), folder / "checkpoint", folder)


def publish(folder: Path, value: float) -> None:
    publisher = Publisher(WeightStore(folder / "weights"))
    publisher.publish({"w": torch.full((2000,), value)}, 0 if publisher.newest is None else publisher.newest + 1)


def documents(count: int) -> list[list[int]]:
    return [[number] * 50 for number in range(count)]


def shards(folder: Path) -> Any:
    try:
        found = TokenShards(folder / "shards")
    except FileNotFoundError:
        return NOTHING
    return [found.document(i).tolist() for i in range(len(found))]


WRITERS: dict[str, Writer] = {
    "the run's ledger": Writer(
        lambda f: StageLedger(f / "l").start("base", {"a": "x" * 100}, {}) and None,
        lambda f: StageLedger(f / "l").finish("base"),
        lambda f: StageLedger(f / "l").finished_attempt("base"),
    ),
    "a summary": Writer(
        lambda f: write_json(f / "s.json", ["old"] * 99),
        lambda f: write_json(f / "s.json", ["new"] * 300),
        lambda f: (f / "s.json").read_text()[:12],
    ),
    "rl's ledger": Writer(
        lambda f: to_ledger(f, "trained"),
        lambda f: to_ledger(f, "saved"),
        lambda f: [entry["kind"] for entry in RlLedger(f / "ledger.jsonl").entries],
    ),
    "rl's steps": Writer(
        lambda f: steps.append(f / "steps.jsonl", step(0)),
        lambda f: steps.append(f / "steps.jsonl", step(1)),
        lambda f: [record.step for record in steps.read(f / "steps.jsonl")],
    ),
    "a group": Writer(
        lambda f: GroupStore(f).save(3, [rollout("old")]),
        lambda f: GroupStore(f).save(3, [rollout("new")]),
        lambda f: [found.id for found in GroupStore(f).load(3)],
    ),
    "an outcome": Writer(
        lambda f: OutcomeFile(f / "o.jsonl").add(outcome(0)),
        lambda f: OutcomeFile(f / "o.jsonl").add(outcome(1)),
        lambda f: sorted(attempt for _, attempt in OutcomeFile(f / "o.jsonl").outcomes),
    ),
    "a demonstration": Writer(lambda f: None, lambda f: new_session(f / "s.jsonl"), lambda f: session(f / "s.jsonl")),
    "a kept session": Writer(
        lambda f: None,
        lambda f: write_session(f / "s.jsonl", record(Recorder(SessionHeader("s"))).session),
        lambda f: session(f / "s.jsonl"),
    ),
    "weights": Writer(
        lambda f: publish(f, 1.0),
        lambda f: publish(f, 2.0),
        lambda f: float(Receiver(WeightStore(f / "weights")).catch_up().state["w"][0]),
    ),
    "a checkpoint": Writer(
        lambda f: trained(f, 0),
        lambda f: trained(f, 1),
        lambda f: float(sum(p.detach().double().sum() for p in load_checkpoint(f / "checkpoint").parameters())),
    ),
    "token shards": Writer(lambda f: None, lambda f: write_shards(f / "shards", documents(90)) and None, shards),
}


def limited(write: Callable[[Path], None], folder: Path, limit_bytes: int) -> bool:
    """Whether the write went through in a process whose files can't grow beyond the limit; a child, because it can't be undone."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
            write(folder)
            code = 0
        except Exception as error:  # noqa: BLE001 - the exit status shows it
            code = 1 if "large" in str(error).lower() or "disk" in str(error) else 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1), "the error does not say what was wrong"
    return code == 0


def limits(folder: Path) -> Iterator[int]:
    """From nothing to the largest file, in steps that cut every file somewhere."""
    sizes = sorted({path.stat().st_size for path in folder.rglob("*") if path.is_file()})
    for size in sizes:
        yield from {0, size // 3, size - 1, size}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_an_error_and_what_lies_there_is_old_or_new(name: str, tmp_path: Path) -> None:
    writer = WRITERS[name]
    free = tmp_path / "free"
    free.mkdir()
    writer.prepare(free)
    before = writer.read(free) if name not in ("a demonstration", "a kept session") else NOTHING
    writer.write(free)
    after = writer.read(free)
    assert before != after
    refused = 0
    for number, limit in enumerate(sorted(set(limits(free)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer.prepare(folder)
        if limited(writer.write, folder, limit):
            assert writer.read(folder) == after, f"at {limit} bytes it went through and is not whole"
            continue
        refused += 1
        assert writer.read(folder) in (before, after, NOTHING), f"at {limit} bytes"
        writer.write(folder)
        assert writer.read(folder) == after, f"after {limit} bytes and more room"
    assert refused
