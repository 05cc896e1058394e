"""What a store promises to those who put files in and take them out."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from layers_upper import GONE, OPAQUE, opened, stack, write

from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.errors import CorruptLayer, UnknownSnapshot, UnsafeContent
from etude.sandbox.layers.names import BadName
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.verification import verify_layer
from etude.sandbox.layers.view import LayerView

TREE = {"work/a.py": b"a = 1\n", "work/sub/b.bin": bytes(range(256)), "work/to-a": "-> a.py", "work/none": GONE}


def test_the_same_files_give_the_same_digest_whenever_and_wherever_they_were_written(
    store: LayerStore, tmp_path: Path
) -> None:
    first = stack(store, tmp_path, TREE)
    with LayerStore(tmp_path / "elsewhere") as other:
        assert stack(other, tmp_path, dict(reversed(TREE.items()))).snapshot == first.snapshot


def test_a_layer_holds_files_links_modes_attributes_and_what_is_hidden(store: LayerStore, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    write(upper, {**TREE, "work/fresh": OPAQUE, "work/fresh/c": b"c"})
    (upper / "work/a.py").chmod(0o750)
    os.setxattr(upper / "work/a.py", "user.note", b"kept")
    os.utime(upper / "work/a.py", ns=(10**18, 10**18))
    with opened(upper) as fd:
        (folder,) = store.ingest(fd, Snapshot()).folders
    status = (folder / "work/a.py").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o750, 10**18)
    assert os.getxattr(folder / "work/a.py", "user.note") == b"kept"
    assert os.getxattr(folder / "work/fresh", "user.overlay.opaque") == b"y"
    assert (folder / "work/none").lstat().st_rdev == 0 and stat.S_ISCHR((folder / "work/none").lstat().st_mode)
    assert (folder / "work/to-a").readlink() == Path("a.py")


def test_no_file_of_a_layer_gives_anybody_rights_that_they_do_not_have(store: LayerStore, tmp_path: Path) -> None:
    """Test 48 of docs/sandbox.md: a setuid file inside an image or a snapshot is none."""
    upper = tmp_path / "upper"
    write(upper, {"usr/bin/su": b"#!"})
    (upper / "usr/bin/su").chmod(0o6755)
    with opened(upper) as fd:
        (folder,) = store.ingest(fd, Snapshot()).folders
    assert stat.S_IMODE((folder / "usr/bin/su").stat().st_mode) == 0o755


def test_pipes_and_sockets_stay_behind_and_large_holes_stay_holes(store: LayerStore, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    write(upper, {"work/data": b""})
    os.mkfifo(upper / "work/pipe")
    with (upper / "work/sparse").open("wb") as file:
        file.truncate(64 << 20)
    with opened(upper) as fd:
        held = store.ingest(fd, Snapshot())
    assert set(LayerView.of(store, held.snapshot).entries) == {"work", "work/data", "work/sparse"}
    status = (held.folders[0] / "work/sparse").stat()
    assert status.st_size == 64 << 20 and status.st_blocks * 512 < 1 << 20


def test_two_names_of_one_file_are_one_file_in_the_layer(store: LayerStore, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    write(upper, {"work/a": b"same"})
    os.link(upper / "work/a", upper / "work/b")
    with opened(upper) as fd:
        (folder,) = store.ingest(fd, Snapshot()).folders
    assert (folder / "work/a").stat().st_ino == (folder / "work/b").stat().st_ino


def test_a_tree_over_its_bounds_is_refused_and_nothing_of_it_stays(store: LayerStore, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    write(upper, {"a": b"", "b": b"", "c": bytes(100)})
    deep = upper
    with opened(upper) as fd:
        for bounds, said in ((Bounds(max_entries=2), "more than 2"), (Bounds(max_bytes=99), "more than 99 bytes")):
            with pytest.raises(UnsafeContent, match=said):
                store.ingest(fd, Snapshot(), bounds=bounds)
        for _ in range(140):
            deep = deep / "d"
        deep.mkdir(parents=True)
        with pytest.raises(UnsafeContent, match="nest deeper"):
            store.ingest(fd, Snapshot())
    assert not list(store.layers.iterdir()) and not list(store.lease.folder.glob("draft-*"))


def test_a_file_closed_to_its_own_owner_is_kept_with_its_mode(store: LayerStore, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    write(upper, {"closed/file": b"x"})
    (upper / "closed/file").chmod(0)
    (upper / "closed").chmod(0o500)
    with opened(upper) as fd:
        held = store.ingest(fd, Snapshot())
    entries = LayerView.of(store, held.snapshot).entries
    assert (entries["closed"].mode, entries["closed/file"].mode) == (0o500, 0)
    verify_layer(store.layer(held.snapshot.layers[0]), held.snapshot.layers[0])


def test_without_a_change_a_snapshot_is_the_chain_it_is_based_on(store: LayerStore, tmp_path: Path) -> None:
    first = stack(store, tmp_path, TREE)
    upper = tmp_path / "upper"
    write(upper, {"work/sub": None})
    with opened(upper) as fd:
        assert store.ingest(fd, first.snapshot).snapshot == first.snapshot
        (upper / "work/sub").chmod(0o700)
        assert store.ingest(fd, first.snapshot).snapshot != first.snapshot


def test_a_snapshot_is_found_by_name_digest_and_beginning_after_a_restart(store: LayerStore, tmp_path: Path) -> None:
    """Test 21 of docs/sandbox.md, first half: the store is opened again."""
    made = stack(store, tmp_path, TREE, {"work/a.py": b"a = 2\n"}, name="task/one:2").snapshot
    store.close()
    with LayerStore(store.root) as again:
        for ref in ("task/one:2", made.digest, made.digest[:8]):
            with again.hold(ref) as held:
                assert held.snapshot == made
        assert (again.hold("task/one:2").folders[0] / "work/a.py").read_bytes() == b"a = 2\n"
        with pytest.raises(UnknownSnapshot, match=r"'task/two'.*there are task/one:2"):
            again.hold("task/two")


@pytest.mark.parametrize("damage", ["flip", "grow", "remove", "mode", "manifest", "seal", "record"])
def test_what_was_changed_in_the_store_is_an_error_and_never_served(
    store: LayerStore, tmp_path: Path, damage: str
) -> None:
    """Test 21 of docs/sandbox.md, second half."""
    held = stack(store, tmp_path, TREE, name="it")
    (digest,) = held.snapshot.layers
    file = held.folders[0] / "work/a.py"
    store.close()
    if damage == "flip":
        file.write_bytes(b"a = 2\n")
    elif damage == "grow":
        file.write_bytes(b"a = 1\n ")
    elif damage == "remove":
        file.unlink()
    elif damage == "mode":
        file.chmod(0o777)
    elif damage == "manifest":
        (store.layer(digest) / "manifest").write_bytes(b"[]")
    elif damage == "seal":
        (store.layer(digest) / "seal").unlink()
    else:
        (store.snapshots / held.snapshot.digest).write_bytes(Snapshot().text())
    with LayerStore(store.root) as again, pytest.raises(CorruptLayer):
        again.hold("it")


def test_after_a_boot_every_byte_is_read_once_before_it_is_served(store: LayerStore, tmp_path: Path) -> None:
    """What a power failure tears keeps its size and time: only its content tells."""
    held = stack(store, tmp_path, TREE, name="it")
    (digest,) = held.snapshot.layers
    file, seal = held.folders[0] / "work/a.py", store.layer(digest) / "seal"
    status = file.stat()
    store.close()
    seal.write_text(seal.read_text().replace('"boot": "', '"boot": "not '))
    with LayerStore(store.root) as again:
        again.hold("it").release()
        seal.write_text(seal.read_text().replace('"boot": "', '"boot": "not '))
        file.write_bytes(b"a = \0\n")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(CorruptLayer, match="work/a.py is not what was written"):
            again.hold("it")


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "../up", "x" * 201, "0" * 64, "new\nline"])
def test_a_name_that_can_be_none_is_refused_before_anything_is_made(
    store: LayerStore, tmp_path: Path, name: str
) -> None:
    upper = tmp_path / "upper"
    write(upper, TREE)
    with opened(upper) as fd, pytest.raises(BadName):
        store.ingest(fd, Snapshot(), name=name) if name else store.names.give(name, "0" * 64)
    assert not list(store.layers.iterdir())
