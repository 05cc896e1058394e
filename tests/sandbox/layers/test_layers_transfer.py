"""Snapshots from one store into another, layer by layer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from layers_upper import GONE, OPAQUE, stack

from etude.sandbox.layers.collect import collect
from etude.sandbox.layers.errors import CorruptLayer, UnknownSnapshot
from etude.sandbox.layers.export import pack
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.transfer import pin_present, receive_layer, record_snapshot
from etude.sandbox.layers.view import LayerView

CHAIN = (
    {"work/a": b"1", "work/b": b"2", "work/d/old": b"3", "work/l": "-> a"},
    {"work/a": GONE, "work/d": OPAQUE, "work/d/new": b"4", "work/name with \n and \udcff": b"5", "x": GONE},
)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LayerStore]:
    with LayerStore(tmp_path / "other") as made:
        yield made


def _packed(store: LayerStore, digest: str) -> io.BytesIO:
    file = io.BytesIO()
    pack(store, digest, file)
    return io.BytesIO(file.getvalue())


def test_layers_arrive_in_any_order_with_all_that_they_hide(
    store: LayerStore, other: LayerStore, tmp_path: Path
) -> None:
    """Test 18 of docs/sandbox.md: a whiteout is kept though nothing is known yet of what it hides."""
    snapshot = stack(store, tmp_path, *CHAIN).snapshot
    for digest in snapshot.layers:  # topmost first
        with receive_layer(other, digest, _packed(store, digest)):
            pass
    with record_snapshot(other, snapshot.text(), "it") as held:
        assert held.snapshot == snapshot == other.resolve("it")
        assert LayerView.of(other, snapshot).contents == LayerView.of(store, snapshot).contents


def test_nothing_is_kept_of_what_is_another_layer(store: LayerStore, other: LayerStore, tmp_path: Path) -> None:
    """Test 21 of docs/sandbox.md."""
    first, second = stack(store, tmp_path, *CHAIN).snapshot.layers
    for wrong in (
        _packed(store, second),
        io.BytesIO(b"no archive" * 100),
        io.BytesIO(_packed(store, first).read()[:2000]),
    ):
        with pytest.raises(CorruptLayer, match="arrived"):
            receive_layer(other, first, wrong)
    assert not list(other.layers.iterdir())


def test_what_has_come_stays_until_the_snapshot_is_entered(
    store: LayerStore, other: LayerStore, tmp_path: Path
) -> None:
    """Test 22 of docs/sandbox.md: a collection without patience comes between any two steps."""
    snapshot = stack(store, tmp_path, *CHAIN).snapshot
    first, second = snapshot.layers
    with receive_layer(other, first, _packed(store, first)):
        collect(other, patience_s=0.0)
        with pin_present(other, snapshot.layers) as here:
            assert here.snapshot.layers == (first,)
            with pytest.raises(UnknownSnapshot, match="bring it first"):
                record_snapshot(other, snapshot.text())
            with receive_layer(other, second, _packed(store, second)):
                collect(other, patience_s=0.0)
                held = record_snapshot(other, snapshot.text())
    collect(other, patience_s=0.0)
    with held:
        assert other.hold(snapshot.digest).snapshot == snapshot


def test_a_layer_that_was_here_and_is_spoilt_is_found_at_entering(
    store: LayerStore, other: LayerStore, tmp_path: Path
) -> None:
    snapshot = stack(store, tmp_path, CHAIN[0]).snapshot
    (digest,) = snapshot.layers
    receive_layer(other, digest, _packed(store, digest)).release()
    (other.layer(digest) / "tree" / "work" / "a").write_bytes(b"other")
    with pytest.raises(CorruptLayer, match="work/a"):
        record_snapshot(other, snapshot.text(), "it")
    assert other.names.find("it") is None


def test_asked_for_by_its_digest_an_image_gets_no_such_name(store: LayerStore) -> None:
    digest = Snapshot().digest
    with record_snapshot(store, Snapshot().text(), digest[:12]):
        assert store.names.all() == {}
