"""What a collection takes, and what it leaves; what a killed process leaves behind, and a full disk."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from layers_upper import opened, stack, write

from etude.sandbox.layers import tree_import
from etude.sandbox.layers.collect import collect
from etude.sandbox.layers.errors import StoreFull, UnknownSnapshot
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.usage import snapshot_usage as all_held

_HOLDER = """
import sys
from pathlib import Path
from etude.sandbox.layers.store import LayerStore
store = LayerStore(Path(sys.argv[1]))
held = store.hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""
_MAKER = """
import os, sys
from pathlib import Path
from etude.sandbox.layers import tree_import
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore
def stuck(*_):
    print("in the middle", flush=True)
    sys.stdin.read()
    os._exit(3)
copies = iter([tree_import.copy, stuck])
true_copy = tree_import.copy
tree_import.copy = lambda *a: next(copies)(*a)
store = LayerStore(Path(sys.argv[1]))
store.ingest(os.open(sys.argv[2], os.O_RDONLY), Snapshot())
"""


def _python(program: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_layer_that_anybody_living_holds_is_never_collected(store: LayerStore, tmp_path: Path) -> None:
    """Test 22 of docs/sandbox.md: here another process holds it, and it has no name."""
    held = stack(store, tmp_path, {"a": b"1"}, {"b": b"2"})
    digest = held.snapshot.digest
    other = _python(_HOLDER, str(store.root), digest)
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        held.release()
        collect(store, patience_s=0)
        assert all((folder).is_dir() for folder in held.folders)
    finally:
        other.kill()
        other.communicate()
    assert collect(store, patience_s=0).layers == 2
    with pytest.raises(UnknownSnapshot):
        store.hold(digest)


def test_what_a_name_leads_to_stays_and_what_lost_its_name_goes(store: LayerStore, tmp_path: Path) -> None:
    stack(store, tmp_path, {"a": b"1"}, {"b": b"2"}, name="kept").release()
    stack(store, tmp_path, {"c": b"3"}, name="gone").release()
    assert store.names.take("gone") and not store.names.take("gone")
    found = collect(store, patience_s=0)
    assert (found.snapshots, found.layers) == (2, 1)  # the chain below "kept" had a record of its own
    with store.hold("kept") as held:
        assert len(held.folders) == 2


def test_a_snapshot_without_name_stays_a_while_but_a_passing_one_does_not(store: LayerStore, tmp_path: Path) -> None:
    lasting = stack(store, tmp_path, {"a": b"1"}).snapshot
    store.close()
    write(tmp_path / "upper", {"b": b"2"})
    with opened(tmp_path / "upper") as fd:
        transient = store.ingest(fd, lasting, transient=True)
    transient.release()
    assert collect(store).layers == 1
    store.hold(lasting.digest).release()


def test_sizes_are_reported_alone_and_shared(store: LayerStore, tmp_path: Path) -> None:
    stack(store, tmp_path, {"a": bytes(100)}, name="base").release()
    stack(store, tmp_path, {"a": bytes(100)}, {"b": bytes(10)}, name="top")
    base, top = all_held(store)
    assert (base.names, base.bytes, base.own_bytes, base.in_use) == (("base",), 100, 0, False)
    assert (top.names, top.bytes, top.own_bytes, top.in_use) == (("top",), 110, 10, True)


def test_a_kill_in_the_middle_of_making_a_layer_leaves_nothing_that_a_collection_does_not_take(
    store: LayerStore, tmp_path: Path
) -> None:
    """Test 12 of docs/sandbox.md, the part of the layers."""
    write(tmp_path / "upper", {"a": b"1", "b": b"2"})
    maker = _python(_MAKER, str(store.root), str(tmp_path / "upper"))
    assert maker.stdout is not None and maker.stdout.readline() == "in the middle\n"
    assert collect(store, patience_s=0).drafts == 0, "the draft of a living process was taken"
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    assert not list(store.layers.iterdir()) and not list(store.snapshots.iterdir())
    assert collect(store, patience_s=0).drafts == 1
    assert not list(store.live.iterdir()) and not list(store.trash.iterdir())


def test_a_full_disk_is_reported_and_leaves_the_store_as_it_was(
    store: LayerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test 26 of docs/sandbox.md, the part of the layers."""
    before = stack(store, tmp_path, {"a": b"1"}, name="before").snapshot
    write(tmp_path / "upper", {"b": b"2", "c": b"3"})

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tree_import, "write_all", full)
    with opened(tmp_path / "upper") as fd, pytest.raises(StoreFull, match="No space left"):
        store.ingest(fd, before)
    assert len(list(store.layers.iterdir())) == 1 and not list(store.lease.folder.glob("draft-*"))
    store.hold("before").release()


def test_makers_holders_and_collectors_at_once_never_lose_what_is_held(store: LayerStore, tmp_path: Path) -> None:
    stop, problems = threading.Event(), []

    def make(number: int) -> None:
        mine = LayerStore(store.root)
        for turn in range(15):
            try:
                with stack(mine, tmp_path / str(number), {f"f{turn % 4}": bytes([turn % 3])}) as held:
                    assert all((folder).is_dir() for folder in held.folders)
                    mine.hold(held.snapshot.digest).release()
            except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
                problems.append(error)
        mine.close()

    def sweep() -> None:
        while not stop.is_set():
            collect(store, patience_s=0)

    makers = [threading.Thread(target=make, args=(number,)) for number in range(3)]
    sweeper = threading.Thread(target=sweep)
    for thread in (*makers, sweeper):
        thread.start()
    for thread in makers:
        thread.join()
    stop.set()
    sweeper.join()
    assert not problems
