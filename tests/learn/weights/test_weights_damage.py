"""A wedged, corrupt or foreign chain is refused, never half believed, and an anchor heals it (promise 7)."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.learn.weights.errors import (
    CorruptShard,
    ForeignFormat,
    LayoutMismatch,
    MissingShard,
    StoreTakenOver,
    Unreachable,
    WeightsError,
)
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore

VERSIONS = 6


def state(version: int) -> dict[str, torch.Tensor]:
    weights = torch.arange(500.0).bfloat16()
    weights[version::53] += 1000
    return {"w": weights, "b": torch.full((5,), float(version))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """anchor-0, delta-1, delta-2, anchor-3 next to delta-3, delta-4, delta-5."""
    folder = tmp_path_factory.mktemp("weights")
    publisher = Publisher(WeightStore(folder), anchor_every=3)
    for version in range(VERSIONS):
        publisher.publish(state(version), version)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def right_or_refused(folder: Path, start: int | None) -> bool:
    """Catches up from a version that was held; whether it came through. What comes through is right, bit by bit."""
    held = None if start is None else state(start)
    try:
        received = Receiver(WeightStore(folder)).catch_up(held, start)
    except WeightsError:
        return False
    assert state_digest(received.state) == state_digest(state(received.version))
    return True


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([None, 0, 2, 4]))
def test_a_byte_changed_anywhere_never_makes_other_weights(copy: Path, seed: int, start: int | None) -> None:
    draw = random.Random(seed)
    path = draw.choice(sorted(p for p in copy.rglob("*") if p.is_file() and p.name != ".lock"))
    before = path.read_bytes()
    at = draw.randrange(len(before))
    harm = draw.choice(["flip", "cut", "more"])
    after = {
        "flip": before[:at] + bytes([before[at] ^ (1 << draw.randrange(8))]) + before[at + 1 :],
        "cut": before[:at],
        "more": before + b"x",
    }[harm]
    path.write_bytes(after)
    try:
        right_or_refused(copy, start)
    finally:
        path.write_bytes(before)
    assert right_or_refused(copy, start)


@pytest.mark.parametrize("start", [None, 0, 2, 4])
def test_any_missing_file_is_walked_around_or_refused(copy: Path, start: int | None) -> None:
    came_through = 0
    for path in sorted(p for p in copy.rglob("*") if p.is_file() and p.name not in (".lock", "index.json")):
        data = path.read_bytes()
        path.unlink()
        came_through += right_or_refused(copy, start)
        path.write_bytes(data)
    assert came_through > 0


def test_a_receiver_behind_a_missing_delta_goes_by_the_anchor(copy: Path) -> None:
    shutil.rmtree(copy / "delta-2")
    received = Receiver(WeightStore(copy)).catch_up(state(1), 1)
    assert received.walked == ("anchor-3", "delta-4", "delta-5") and received.version == 5


def test_the_order_of_the_index_does_not_matter(copy: Path) -> None:
    rewrite(copy, lambda index: index["entries"].reverse())
    for start in (None, 0, 3):
        assert right_or_refused(copy, start)


def test_an_index_whose_entries_name_one_anothers_manifests_is_refused(copy: Path) -> None:
    def swap(index: dict[str, Any]) -> None:
        by_name = {(e["version"], e["base"]): e for e in index["entries"]}
        one, two = by_name[4, 3], by_name[5, 4]
        one["manifest_sha256"], two["manifest_sha256"] = two["manifest_sha256"], one["manifest_sha256"]

    rewrite(copy, swap)
    with pytest.raises((MissingShard, CorruptShard), match="manifest-"):
        Receiver(WeightStore(copy)).catch_up(state(3), 3)


def test_the_index_of_another_chain_leads_nowhere(copy: Path, tmp_path: Path) -> None:
    other = Publisher(WeightStore(tmp_path / "other"))
    other.publish({"v": torch.zeros(9)}, 5)
    shutil.copy(tmp_path / "other" / "index.json", copy / "index.json")
    with pytest.raises(MissingShard, match="anchor-5/manifest-"):
        Receiver(WeightStore(copy)).catch_up(state(4), 4)


def test_another_models_chain_is_not_gone_on_with(copy: Path) -> None:
    publisher = Publisher(WeightStore(copy))
    with pytest.raises(LayoutMismatch, match="another model's chain, publish into a new store"):
        publisher.publish({"v": torch.zeros(9)}, VERSIONS)
    assert right_or_refused(copy, None)


@pytest.mark.parametrize("number", [1, 3])
def test_a_store_of_another_format_is_refused_by_name(copy: Path, number: int) -> None:
    rewrite(copy, lambda index: index.update(format=number))
    for read in (Receiver(WeightStore(copy)).catch_up, lambda: Publisher(WeightStore(copy))):
        with pytest.raises(ForeignFormat, match=rf"index\.json is of format {number}, this reads format 2"):
            read()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 2, "entries": [1]}', '{"format": 2, "entries": 7}']
)
def test_what_is_no_index_is_refused(copy: Path, text: str) -> None:
    (copy / "index.json").write_text(text)
    with pytest.raises(CorruptShard, match=r"index\.json is no index"):
        Receiver(WeightStore(copy)).catch_up()


def test_a_chain_that_cannot_be_read_any_more_is_healed_by_an_anchor(copy: Path) -> None:
    for folder in ("delta-4", "anchor-3", "anchor-0"):
        shutil.rmtree(copy / folder)
    with pytest.raises(MissingShard):
        Receiver(WeightStore(copy)).catch_up()
    publisher = Publisher(WeightStore(copy), anchor_every=99)
    assert publisher.newest == 5 and publisher.base is None and "anchor-" in str(publisher.unreadable)
    published = publisher.publish(state(6), 6)
    assert published.delta_bytes is None
    for start in (None, 2, 5):  # a late joiner, and engines that still serve what they had
        held = None if start is None else state(start)
        assert Receiver(WeightStore(copy)).catch_up(held, start).walked == ("anchor-6",)
    assert publisher.publish(state(7), 7).base == 6


def test_receivers_that_report_damage_are_healed_on_request(copy: Path) -> None:
    publisher = Publisher(WeightStore(copy), anchor_every=99)
    for path in (copy / "delta-5").glob("shard-*"):
        path.unlink()
    shutil.rmtree(copy / "anchor-3")
    shutil.rmtree(copy / "anchor-0")
    with pytest.raises(WeightsError):
        Receiver(WeightStore(copy)).catch_up(state(4), 4)
    publisher.heal()
    publisher.publish(state(6), 6)
    assert state_digest(Receiver(WeightStore(copy)).catch_up(state(4), 4).state) == state_digest(state(6))


def test_the_later_of_two_writers_shuts_the_earlier_out_and_its_files_do_no_harm(tmp_path: Path) -> None:
    store = WeightStore(tmp_path)
    old = Publisher(store)
    old.publish(state(0), 0)
    new = Publisher(store)
    new.publish(state(1), 1)
    with pytest.raises(StoreTakenOver, match="was taken over by the writer"):
        old.publish(state(4), 1)
    with pytest.raises(StoreTakenOver):
        old.truncate(0)
    new.publish(state(2), 2)
    received = Receiver(store).catch_up(state(0), 0)
    assert received.walked == ("delta-1", "delta-2") and state_digest(received.state) == state_digest(state(2))


def test_a_walk_that_the_sender_tidied_away_begins_again_from_the_new_index(tmp_path: Path) -> None:
    publisher = Publisher(WeightStore(tmp_path), anchor_every=2, keep_anchors=1)
    publisher.publish(state(0), 0)

    class Slow(WeightStore):
        """Reads an index, and is then overtaken by the trainer."""

        def index(self) -> Any:
            found = super().index()
            for version in (1, 2, 3, 4):
                if publisher.newest is not None and publisher.newest < version:
                    publisher.publish(state(version), version)
            return found

    received = Receiver(Slow(tmp_path)).catch_up()
    assert received.version == 4 and state_digest(received.state) == state_digest(state(4))


def test_a_version_that_never_was_is_unreachable(copy: Path) -> None:
    with pytest.raises(Unreachable, match="no version 17"):
        Receiver(WeightStore(copy)).catch_up(goal=17)
