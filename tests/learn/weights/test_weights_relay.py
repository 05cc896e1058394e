"""A region's copy of a store: whole whenever it is looked at, each shard fetched once, killed anywhere, outdated never (promise 7)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from memory_bucket import MemoryBucket

from etude.learn.weights import inspect
from etude.learn.weights.errors import BadStore, CorruptShard, ForeignChain, StoreTakenOver, Unreachable
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.relay import OWNER, WeightRelay
from etude.learn.weights.relay_plan import copies, gives_way, kept_entries
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore


def state(version: int, size: int = 600) -> dict[str, torch.Tensor]:
    weights = torch.arange(size, dtype=torch.float32)
    weights[: version % size] += version
    return {"w": weights.bfloat16(), "b": torch.full((7,), float(version))}


class Killed(BaseException):
    """The relay's process is gone."""


class World:
    """A run's store and a region's, and the engine there."""

    def __init__(self, anchor_every: int = 3) -> None:
        self.run, self.region = MemoryBucket("run"), MemoryBucket("region")
        self.publisher = Publisher(WeightStore(self.run), anchor_every=anchor_every, workers=1)
        self.said: list[dict[str, Any]] = []
        self.now_s = 0.0

    def publish(self, version: int, ack: bool = True) -> None:
        self.publisher.publish(state(version), version)
        if ack:
            self.publisher.join("home")
            self.publisher.acknowledge("home", version)

    def relay(self) -> WeightRelay:
        return WeightRelay(
            WeightStore(self.run), WeightStore(self.region), self.said.append, streams=1, clock=lambda: self.now_s
        )

    def engine(self, held: Any = None) -> Any:
        receiver = Receiver(WeightStore(self.region), workers=1)
        return receiver.catch_up(held.state, held.version) if held else receiver.catch_up()

    def check_whole(self) -> None:
        """Whatever the region's index names is there, and leads to the run's own bits."""
        index = WeightStore(self.region).index()
        for entry in index.entries:
            manifest = WeightStore(self.region).manifest(entry)
            for number in range(len(manifest.shards)):
                manifest.check_shard(number, WeightStore(self.region).shard(manifest, number))
            assert entry.digest == state_digest(state(entry.version))

    def shard_bytes(self) -> dict[str, int]:
        return {key: count for key, count in self.run.got.items() if "/shard-" in key}


@pytest.fixture
def world() -> World:
    return World()


def test_a_region_reaches_every_version_bit_by_bit_and_each_shard_crosses_once(world: World) -> None:
    relay, held = None, None
    for version in range(9):
        world.publish(version)
        relay = relay or world.relay()
        world.run.got.clear() if version == 0 else None
        assert relay.once() == version
        held = world.engine(held)
        assert held.version == version and state_digest(held.state) == state_digest(state(version))
        world.check_whole()
    assert all(count == len(world.run.objects.get(key, b" " * count)) for key, count in world.shard_bytes().items())
    assert relay is not None and relay.crossed.shard_bytes == sum(world.shard_bytes().values())
    assert world.engine().version == 8 and inspect.verify(WeightStore(world.region))["whole"]


@given(st.data())
def test_killed_at_any_object_the_region_is_whole_and_nothing_that_had_come_is_fetched_again(
    data: st.DataObject,
) -> None:
    world = World(anchor_every=data.draw(st.integers(1, 4)))
    for version in range(data.draw(st.integers(1, 7))):
        world.publish(version, ack=data.draw(st.booleans()))
    before = dict(world.run.got)
    lives = 0
    while True:
        left = data.draw(st.integers(1, 12))

        def act(verb: str, key: str) -> None:
            nonlocal left
            left -= verb in ("put", "was put", "replace", "was replaced")
            if left == 0:
                raise Killed

        world.region.act = act if lives < 6 else lambda verb, key: None
        lives += 1
        try:
            world.relay().once()
            break
        except Killed:
            world.region.act = lambda verb, key: None
            world.check_whole()
            if WeightStore(world.region).index().entries:
                world.engine()
    assert world.engine().version == world.publisher.newest
    assert inspect.verify(WeightStore(world.region))["whole"]
    for key, count in world.shard_bytes().items():
        fetched = (count - before.get(key, 0)) / len(world.run.objects[key])
        assert fetched <= 1 + lives, key
    assert set(world.region.folders()) == {entry.name for entry in WeightStore(world.region).index().entries}


def test_a_shard_that_lies_in_the_region_is_not_fetched_by_the_next_life(world: World) -> None:
    for version in range(3):
        world.publish(version)

    def before_manifests(verb: str, key: str) -> None:
        if verb == "put" and "/manifest-" in key:
            raise Killed

    world.region.act = before_manifests
    world.run.got.clear()
    with pytest.raises(Killed):
        world.relay().once()
    world.region.act = lambda verb, key: None
    world.relay().once()
    assert all(count == len(world.run.objects[key]) for key, count in world.shard_bytes().items())


def test_versions_that_no_one_needs_any_more_are_not_copied(world: World) -> None:
    world = World(anchor_every=100)
    world.publish(0)
    relay = world.relay()
    relay.once()
    for version in range(1, 6):
        world.publish(version, ack=False)  # all from version 0, which is all that the receiver holds
    world.run.got.clear()
    assert relay.once() == 5
    assert {key.split("/")[0] for key in world.shard_bytes()} == {"delta-5"}
    assert world.engine().walked == ("anchor-0", "delta-5")


def test_a_newer_index_is_looked_for_before_an_outdated_copy_goes_on(world: World) -> None:
    """Version 1 is passed by when version 5 is out and more than half of version 1 is still to come."""
    world = World(anchor_every=100)
    world.publish(0)
    relay = world.relay()
    relay.once()
    world.publish(1, ack=False)

    def meanwhile(verb: str, key: str) -> None:
        if verb == "get" and key.startswith("delta-1/manifest"):
            world.run.act = lambda verb, key: None
            world.now_s += 10
            world.publish(5, ack=False)

    world.run.act = meanwhile
    world.run.got.clear()
    assert relay.once() == 5
    assert {key.split("/")[0] for key in world.shard_bytes()} == {"delta-5"}
    assert [result["name"] for result in world.said if result["event"] == "passes_by"] == ["delta-1"]


def test_a_delta_goes_before_the_anchor_that_is_on_its_way(world: World) -> None:
    relay = None
    for version in range(3):
        world.publish(version)
        relay = relay or world.relay()
        relay.once()
    world.publish(3)  # an anchor next to it

    def meanwhile(verb: str, key: str) -> None:
        if verb == "get" and key.startswith("anchor-3/manifest"):
            world.run.act = lambda verb, key: None
            world.now_s += 10
            world.publish(4)

    world.run.act = meanwhile
    assert relay is not None and relay.once() == 4
    names = [result["name"] for result in world.said if result["event"] in ("copied", "passes_by")]
    assert names[-4:] == ["delta-3", "anchor-3", "delta-4", "anchor-3"]


def test_retention_that_takes_what_is_half_copied_away_leads_on_by_what_there_is(world: World) -> None:
    world = World(anchor_every=1)
    world.publish(0)
    relay = world.relay()
    relay.once()
    world.publish(1)

    def meanwhile(verb: str, key: str) -> None:
        if verb == "part":
            world.run.act = lambda verb, key: None
            for version in range(2, 6):
                world.publish(version)

    world.run.act = meanwhile
    assert relay.once() == 5
    world.check_whole()
    assert world.engine().version == 5
    assert set(world.region.folders()) <= {entry.name for entry in WeightStore(world.run).index().entries}


def test_what_is_broken_at_the_source_is_walked_around_or_refused_until_an_anchor_heals(world: World) -> None:
    world = World(anchor_every=100)
    world.publish(0)
    relay = world.relay()
    relay.once()
    world.publish(1)
    (key,) = [key for key in world.run.objects if key.startswith("delta-1/shard-00000")]
    world.run.objects[key] = b"x" + world.run.objects[key][1:]
    with pytest.raises(CorruptShard, match="delta-1/shard"):
        relay.once()
    assert world.engine().version == 0 and [result["event"] for result in world.said][-2:] == ["broken", "wedged"]
    world.publisher.mend(1)
    assert relay.once() == 1
    assert world.engine().walked == ("anchor-1",)


def test_a_missing_object_is_no_end_either(world: World) -> None:
    world = World(anchor_every=100)
    world.publish(0)
    world.publish(1)
    (key,) = [key for key in world.run.objects if key.startswith("delta-1/manifest")]
    del world.run.objects[key]
    with pytest.raises(Exception, match="delta-1"):
        world.relay().once()
    assert world.engine().version == 0


def test_a_source_that_is_silent_or_gone_is_waited_for_and_the_region_keeps_what_it_has(world: World) -> None:
    world.publish(0)
    relay, stop = world.relay(), threading.Event()
    relay.once()
    looks = iter(range(100))

    def silent(verb: str, key: str) -> None:
        if next(looks) == 3:
            world.run.act = lambda verb, key: None
            world.publish(1)
            return
        raise BadStore("the server does not answer")

    world.run.act = silent
    old_wait = stop.wait
    stop.wait = lambda timeout=None: (relay.newest == 1 and stop.set()) or old_wait(0)  # type: ignore[method-assign]
    relay.follow(stop, poll_s=0.01)
    assert relay.newest == 1 and [result["event"] for result in world.said][-3:] == ["waits", "copied", "goes_on"]
    world.run.objects.clear()  # a folder that is not mounted
    assert not relay.advance() and world.engine().version == 1


def test_the_later_of_two_relays_shuts_the_earlier_out(world: World) -> None:
    world.publish(0)
    first = world.relay()
    first.once()
    world.relay()
    world.publish(1)
    with pytest.raises(StoreTakenOver, match="must stop"):
        first.once()


def test_a_place_of_another_chain_is_refused_and_keeps_everything(world: World) -> None:
    world.publish(0)
    Publisher(WeightStore(world.region), workers=1).publish(state(7), 7)
    before = dict(world.region.objects)
    with pytest.raises(ForeignChain, match="holds weights that no relay of run has put there"):
        world.relay()
    assert world.region.objects == before
    other = MemoryBucket("elsewhere")
    WeightRelay(WeightStore(world.run), WeightStore(other)).once()
    before = dict(other.objects)
    with pytest.raises(ForeignChain, match=f"belongs to a relay of.*remove {OWNER}"):
        WeightRelay(WeightStore(MemoryBucket("another run")), WeightStore(other))
    assert other.objects == before


def test_what_was_damaged_in_the_region_is_copied_again_by_the_next_life(world: World) -> None:
    for version in range(3):
        world.publish(version)
    world.relay().once()
    key = next(key for key in world.region.objects if key.startswith("anchor-0/shard-"))
    world.region.objects[key] = b"rot"
    world.relay().once()
    assert [result for result in world.said if result["event"] == "damaged"] == [
        {"event": "damaged", "names": ["anchor-0"]}
    ]
    world.check_whole()


def test_a_course_that_was_given_up_is_given_up_in_the_region(world: World) -> None:
    for version in range(4):
        world.publish(version)
    relay = world.relay()
    relay.once()
    world.publisher.truncate(1)
    assert relay.once() == 1 and world.engine().version == 1
    world.publisher.publish(state(2), 2)
    assert relay.once() == 2
    world.check_whole()


def test_an_empty_source_has_no_version_yet(world: World) -> None:
    with pytest.raises(Unreachable, match="no way to version None"):
        world.relay().once()


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 4), st.data())
def test_what_is_planned_leads_to_the_newest_and_holds_nothing_twice(
    acks: list[bool], every: int, data: st.DataObject
) -> None:
    world = World(anchor_every=every)
    for version, ack in enumerate(acks):
        world.publish(version, ack)
        if data.draw(st.booleans()):
            world.relay().once()
    source, target = WeightStore(world.run).index(), WeightStore(world.region).index()
    found = copies(source, target)
    assert found.first is not None and not {*found.first, *found.later} & set(target.entries)
    have = set(kept_entries(source, target))
    for one in (*found.first, *found.later):
        assert one in source.entries
        have.add(one)
    assert source.newest in {entry.version for entry in have}
    assert not found.first or target.newest != source.newest


def test_at_most_one_copy_in_a_row_is_dropped() -> None:
    assert gives_way(60, 100, False) and not gives_way(60, 100, True) and not gives_way(40, 100, False)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    publisher = Publisher(WeightStore(tmp_path / "run"), anchor_every=3)
    for version in range(4):
        publisher.publish(state(version), version)
    yield tmp_path / "run", tmp_path / "region"


VERB = [sys.executable, "-c", "from etude.cli.main import main; main()", "weights"]


def etude(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*VERB, *words], capture_output=True, text=True, timeout=60)


def test_the_verb_copies_a_folder_and_says_what_it_did(folders: tuple[Path, Path]) -> None:
    run, region = map(str, folders)
    answer = etude("relay", run, region, "--json")
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert result["newest"] == 3 and result["shard_bytes"] > 0
    assert {json.loads(line)["event"] for line in answer.stderr.splitlines()} == {"copied"}
    assert inspect.verify(WeightStore(Path(region)))["whole"]


@pytest.mark.nightly
def test_the_verb_refuses_what_is_no_store(folders: tuple[Path, Path]) -> None:
    run, region = map(str, folders)
    answer = etude("relay", f"{run}-none", region)
    assert answer.returncode == 1 and "is no folder; give the run's store" in answer.stderr
    answer = etude("relay", "gs://x", region)
    assert answer.returncode == 1 and "weights go to a folder or to s3://bucket/prefix" in answer.stderr


def test_the_verb_follows_until_it_is_asked_to_end(folders: tuple[Path, Path]) -> None:
    run, region = folders
    process = subprocess.Popen([*VERB, "relay", str(run), str(region), "--follow"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None and "anchor-3" in process.stderr.readline()
        publisher = Publisher(WeightStore(run), anchor_every=100)
        publisher.publish(state(4), 4)
        assert any("delta-4" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert Receiver(WeightStore(region)).catch_up().version == 4
