"""Publisher and receiver over a directory: bit-identical or refused, whole or not at all, and a way around what is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from etude.learn.weights import inspect
from etude.learn.weights.errors import CorruptShard, ForkedChain, MissingShard, Unreachable
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore


class Trainer:
    """A state that changes in place, as an optimizer does."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.state = {
            "a": torch.randn(64, 8, generator=self._generator),
            "b": torch.randn(16, generator=self._generator),
        }

    def step(self) -> dict[str, Tensor]:
        for tensor in self.state.values():
            tensor.add_(1e-4 * torch.randn(tensor.shape, generator=self._generator))
        return self.state


def test_the_lock_of_a_store_empties_no_file_that_it_is_a_link_to(tmp_path: Path) -> None:
    (tmp_path / "home.txt").write_text("mine")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / ".lock").symlink_to(tmp_path / "home.txt")
    Publisher(WeightStore(tmp_path / "weights")).publish(Trainer().step(), 0)
    assert (tmp_path / "home.txt").read_text() == "mine"


@pytest.fixture
def store(tmp_path: Path) -> WeightStore:
    return WeightStore(tmp_path / "weights")


def published(store: WeightStore, versions: int, **options: int) -> tuple[Publisher, list[str]]:
    """A store with versions 0 .. versions - 1, and the digest of each."""
    trainer, publisher = Trainer(), Publisher(store, **options)
    return publisher, [publisher.publish(trainer.step(), version).digest for version in range(versions)]


def file_of(store: WeightStore, folder: str, kind: str) -> Path:
    """The first shard, or the manifest, of an anchor or delta."""
    return min((Path(store.url) / folder).glob(f"{kind}-*"))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_receiver_follows_bit_by_bit_while_the_trainer_changes_in_place(store: WeightStore) -> None:
    trainer, publisher, receiver = Trainer(), Publisher(store), Receiver(store)
    publisher.join("engine")
    held = None
    for version in range(6):
        digest = state_digest(trainer.step())
        report = publisher.publish(trainer.state, version)
        assert report.digest == digest
        held = receiver.catch_up(held.state if held else None, held.version if held else None)
        assert held.version == version and state_digest(held.state) == digest
        assert held.walked == ((f"delta-{version}",) if version else ("anchor-0",))
        publisher.acknowledge("engine", version)
        assert report.base == (version - 1 if version else None)
    print(f"fp32 delta / anchor = {report.ratio:.3f}")


def test_receiver_that_ran_ahead_of_the_base_steps_back(store: WeightStore) -> None:
    trainer, publisher, receiver = Trainer(), Publisher(store), Receiver(store)
    for name in ("fast", "slow"):
        publisher.join(name)
    publisher.publish(trainer.step(), 0)
    fast = receiver.catch_up()
    for name in ("fast", "slow"):
        publisher.acknowledge(name, 0)
    publisher.publish(trainer.step(), 1)
    fast = receiver.catch_up(fast.state, fast.version)
    publisher.acknowledge("fast", 1)
    publisher.publish(trainer.step(), 2)
    fast = receiver.catch_up(fast.state, fast.version)
    assert fast.walked == ("~delta-1", "delta-2")
    assert state_digest(fast.state) == state_digest(trainer.state)


def test_late_receiver_starts_from_an_anchor(store: WeightStore) -> None:
    _, digests = published(store, 8, anchor_every=3, keep_anchors=1)
    late = Receiver(store).catch_up()
    assert late.walked == ("anchor-6", "delta-7") and state_digest(late.state) == digests[7]


def test_corrupt_delta_is_named_and_walked_around_by_an_anchor(store: WeightStore) -> None:
    _, digests = published(store, 4, anchor_every=3)
    held = Receiver(store).catch_up(goal=2)
    damage(file_of(store, "delta-3", "shard"))
    received = Receiver(store).catch_up(held.state, held.version)
    assert received.walked == ("anchor-3",) and state_digest(received.state) == digests[3]
    assert "delta-3/shard-00000-" in received.refused[0]


@pytest.mark.parametrize(
    ("harm", "error"), [(damage, CorruptShard), (Path.unlink, MissingShard)], ids=["corrupt", "missing"]
)
@pytest.mark.parametrize("kind", ["shard", "manifest"])
def test_without_a_way_around_the_receiver_refuses(store: WeightStore, harm: object, error: type, kind: str) -> None:
    published(store, 2)
    harm(file_of(store, "delta-1", kind))  # type: ignore[operator]
    with pytest.raises(error, match=f"delta-1/{kind}-"):
        Receiver(store).catch_up()
    assert Receiver(store).catch_up(goal=0).version == 0


def test_a_state_that_is_not_what_it_is_called_is_not_built_upon(store: WeightStore) -> None:
    _, digests = published(store, 3)
    held = Receiver(store).catch_up(goal=1)
    spoiled = {name: tensor.clone() for name, tensor in held.state.items()}
    spoiled["b"][0] += 1
    received = Receiver(store).catch_up(spoiled, 1)
    assert state_digest(received.state) == digests[2] and "not version 1" in received.refused[0]
    again = Receiver(store).catch_up(spoiled, 2)
    assert state_digest(again.state) == digests[2]


def test_empty_store_is_unreachable(store: WeightStore) -> None:
    with pytest.raises(Unreachable, match="no version at all"):
        Receiver(store).catch_up()


def test_publishing_a_version_again_is_fine_only_with_the_same_bits(store: WeightStore) -> None:
    publisher, digests = published(store, 3)
    state = Receiver(store).catch_up().state
    before = (Path(store.url) / "index.json").read_text()
    assert publisher.publish(state, 2).digest == digests[2]
    assert (Path(store.url) / "index.json").read_text() == before
    state["b"] = state["b"] + 1
    with pytest.raises(ForkedChain, match="version 2 is published"):
        publisher.publish(state, 2)


def test_a_reopened_publisher_goes_on_where_the_old_one_stopped(store: WeightStore) -> None:
    published(store, 3, anchor_every=2)
    trainer, held = Trainer(1), Receiver(store).catch_up()
    publisher = Publisher(store, anchor_every=2)
    assert (publisher.newest, publisher.base) == (2, 2)
    report = publisher.publish(trainer.step(), 3)
    assert report.base == 2
    assert Receiver(store).catch_up(held.state, held.version).walked == ("delta-3",)


def test_truncating_gives_up_a_course_and_receivers_on_it_start_again(store: WeightStore) -> None:
    publisher, digests = published(store, 5)
    lost = Receiver(store).catch_up()
    publisher.truncate(2)
    assert publisher.newest == 2 and not (Path(store.url) / "delta-4").exists()
    trainer = Trainer(7)
    for version in (3, 4):
        publisher.publish(trainer.step(), version)
    received = Receiver(store).catch_up(lost.state, lost.version)
    assert state_digest(received.state) == state_digest(trainer.state) != digests[4]
    with pytest.raises(Unreachable, match="version 9"):
        publisher.truncate(9)


def test_a_write_that_fails_leaves_the_store_as_it_was(store: WeightStore, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, digests = published(store, 2)
    trainer = Trainer(3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            publisher.publish(trainer.step(), 2)
    assert state_digest(Receiver(store).catch_up().state) == digests[1]
    assert not list(Path(store.url).glob(".partial-delta*"))
    assert publisher.publish(trainer.state, 2).base == 1
    assert state_digest(Receiver(store).catch_up().state) == state_digest(trainer.state)


def test_a_writer_killed_before_its_commit_is_not_seen_and_does_not_matter(store: WeightStore) -> None:
    publisher, _ = published(store, 2)
    (Path(store.url) / "delta-2").mkdir()
    (Path(store.url) / "delta-2" / "shard-00000.bin").write_bytes(b"half")
    (Path(store.url) / ".partial-delta-3").mkdir()
    assert Receiver(store).catch_up().version == 1
    trainer = Trainer(5)
    publisher.publish(trainer.step(), 2)
    assert state_digest(Receiver(store).catch_up().state) == state_digest(trainer.state)
    assert not (Path(store.url) / ".partial-delta-3").exists()


def test_retention_keeps_the_store_small_and_whole(store: WeightStore) -> None:
    published(store, 20, anchor_every=4, keep_anchors=2)
    names = {path.name for path in Path(store.url).iterdir() if path.name != ".lock"}
    assert names == {"index.json", "anchor-12", "anchor-16", *(f"delta-{v}" for v in range(13, 20))}
    assert inspect.verify(store)["whole"]


def test_show_and_verify_tell_what_is_there_and_what_is_broken(store: WeightStore) -> None:
    published(store, 3)
    shown = inspect.show(store)
    assert (shown["anchors"], shown["deltas"], shown["newest"]) == (1, 2, 2)
    assert 0 < shown["mean_ratio"] < 1
    json.dumps(shown)
    assert inspect.verify(store) == {"versions": 3, "reached": 3, "problems": [], "whole": True}
    damage(file_of(store, "delta-1", "shard"))
    found = inspect.verify(store)
    assert not found["whole"] and "delta-1/shard-00000-" in found["problems"][0]


def test_a_broken_index_says_so(store: WeightStore) -> None:
    published(store, 1)
    (Path(store.url) / "index.json").write_text("{")
    with pytest.raises(CorruptShard, match=r"index\.json is no index"):
        Receiver(store).catch_up()
