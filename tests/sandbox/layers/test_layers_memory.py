"""Layers in memory: they go with their last holder, are copied to the disk when they are to stay, and leave nothing in memory."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.sandbox.layers import backing
from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.collect import collect
from etude.sandbox.layers.orphaned import orphaned_stores, remove_orphaned
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.view import LayerView


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder instead of the machine's own file system in memory."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(backing, "MEMORY", folder)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == folder)
    return folder


@pytest.fixture
def store(tmp_path: Path, memory: Path) -> Iterator[LayerStore]:
    with LayerStore(tmp_path / "store", in_memory=True) as made:
        yield made


def taken(store: LayerStore, upper: Path, below: Snapshot = Snapshot(), **how: object) -> PinnedSnapshot:
    """With bounds that any disk has room for: memory is a folder of the disk here."""
    how.setdefault("bounds", Bounds(max_bytes=1 << 20))
    upper.mkdir(exist_ok=True)
    (upper / "a.py").write_bytes(b"a = 1\n")
    fd = os.open(upper, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return store.ingest(fd, below, **how)  # type: ignore[arg-type]
    finally:
        os.close(fd)


def test_what_passes_is_in_memory_and_goes_with_its_holder(store: LayerStore, tmp_path: Path, memory: Path) -> None:
    held = taken(store, tmp_path / "upper", transient=True)
    assert memory in held.folders[0].parents and not list(store.layers.iterdir())
    assert (held.folders[0] / "a.py").read_bytes() == b"a = 1\n"
    collect(store)
    assert held.folders[0].is_dir()
    held.release()
    collect(store)
    assert not list(store.backings[1].layers.iterdir()) and not list(store.snapshots.iterdir())


def test_a_snapshot_above_copies_what_is_in_memory_to_the_disk(store: LayerStore, tmp_path: Path) -> None:
    transient = taken(store, tmp_path / "upper", transient=True)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.py").write_bytes(b"b = 2\n")
    kept = taken(store, tmp_path / "more", transient.snapshot, name="kept")
    transient.release()
    kept.release()
    store.close()
    with LayerStore(store.root) as disk_alone, disk_alone.hold("kept") as again:
        assert sorted(LayerView.of(disk_alone, again.snapshot).entries) == ["a.py", "b.py"]
        assert all(store.layers in folder.parents for folder in again.folders)


def test_the_last_one_to_close_takes_the_folders_in_memory_away(store: LayerStore, memory: Path) -> None:
    with LayerStore(store.root, in_memory=True):
        assert len(list(memory.iterdir())) == 1
    assert len(list(memory.iterdir())) == 1, "the other one is still there"
    store.close()
    assert not list(memory.iterdir())


def test_what_could_fill_the_memory_goes_to_the_disk(
    store: LayerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing.StoreBacking, "free_bytes", 1 << 20)
    with taken(store, tmp_path / "upper", transient=True) as held:
        assert store.layers in held.folders[0].parents


def test_a_folder_of_somebody_else_s_is_not_used(tmp_path: Path, memory: Path) -> None:
    with LayerStore(tmp_path / "store", in_memory=True) as first:
        assert first.memory is not None
        name = first.memory.root
    name.symlink_to(tmp_path)
    with LayerStore(tmp_path / "store", in_memory=True) as second:
        assert second.memory is None


@pytest.mark.parametrize("store_is_gone", [False, True])
def test_what_a_killed_process_left_in_memory_is_forsaken_and_nothing_of_the_living(
    tmp_path: Path, memory: Path, store_is_gone: bool
) -> None:
    killed = tmp_path / "killed"
    pid = os.fork()
    if not pid:
        taken(LayerStore(killed, in_memory=True), tmp_path / "upper", transient=True)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    if store_is_gone:
        shutil.rmtree(killed)
    with LayerStore(tmp_path / "living", in_memory=True) as living:
        assert living.memory is not None
        (left,) = orphaned_stores(memory)
        assert left != living.memory.root and remove_orphaned(left) and not remove_orphaned(living.memory.root)
        assert list(memory.iterdir()) == [living.memory.root] and orphaned_stores(memory) == []
