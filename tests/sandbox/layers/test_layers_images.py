"""Snapshots out and in as archives, images of every kind, and archives that mean harm."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from layers_upper import GONE, OPAQUE, stack, write

from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.errors import BadImage, LayerError, UnsafeContent
from etude.sandbox.layers.export import export
from etude.sandbox.layers.image import load
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.view import LayerView

CHAIN = (
    {"work/a": b"1", "work/b": b"2", "work/d/old": b"3", "work/l": "-> a"},
    {"work/a": GONE, "work/d": OPAQUE, "work/d/new": b"4", "work/name with \n and \udcff": b"5"},
)


def _exported(store: LayerStore, held: PinnedSnapshot, target: Path) -> Path:
    with target.open("wb") as file:
        export(store, held, file)
    return target


def test_a_snapshot_goes_out_and_in_with_all_that_it_hides(store: LayerStore, tmp_path: Path) -> None:
    """Test 18 of docs/sandbox.md: whiteouts and opaque folders survive the archive; the digests are the same elsewhere."""
    held = stack(store, tmp_path, *CHAIN)
    archive = _exported(store, held, tmp_path / "it.tar")
    with LayerStore(tmp_path / "elsewhere") as other:
        found = load(other, archive, name="it")
        assert found.snapshot == held.snapshot
        assert LayerView.of(other, found.snapshot).contents == LayerView.of(store, held.snapshot).contents
        assert _exported(other, found, tmp_path / "again.tar").read_bytes() == archive.read_bytes()


@pytest.mark.parametrize("form", ["folder", "tar", "tar.gz", "oci folder"])
def test_a_root_file_system_in_any_form_is_the_same_image(store: LayerStore, tmp_path: Path, form: str) -> None:
    root = tmp_path / "root"
    write(root, {"bin/sh": b"#!", "etc/os": b"x", "usr/lib/l": "-> ../../bin/sh"})
    os.link(root / "bin/sh", root / "bin/bash")
    expected = load(store, root).snapshot
    assert expected.is_image
    if form == "oci folder":
        archive = _exported(store, load(store, root), tmp_path / "oci.tar")
        subprocess.run(["tar", "-xf", archive, "-C", _made(tmp_path / "oci")], check=True)
        source = tmp_path / "oci"
    else:
        source = root
        if form != "folder":
            source = tmp_path / f"root.{form}"
            subprocess.run(["tar", "-caf", source, "-C", root, "."], check=True)
    assert load(store, source, name="os:1").snapshot.layers == expected.layers


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed")
def test_an_engine_loads_what_we_export(store: LayerStore, tmp_path: Path) -> None:
    write(tmp_path / "root", {"etc/os": b"x"})
    archive = _exported(store, load(store, tmp_path / "root"), tmp_path / "it.tar")
    base = ["podman", "--root", str(tmp_path / "p"), "--runroot", str(tmp_path / "r"), "--storage-driver", "vfs"]
    done = subprocess.run([*base, "load", "-q", "-i", archive], capture_output=True, text=True)
    if "Loaded image" not in done.stdout:
        pytest.skip(f"podman works differently here: {done.stderr.strip()[-200:]}")
    saved = tmp_path / "saved.tar"
    name = done.stdout.split()[-1].removeprefix("sha256:")
    subprocess.run([*base, "save", "-q", "--format", "docker-archive", "-o", saved, name], check=True)
    assert LayerView.of(store, load(store, saved).snapshot).entries["etc/os"].size == 1


def _archive(*members: tuple[str, dict[str, object], bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, fields, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in fields.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


LINK, HARD, FOLDER, DEVICE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../out", {}, b"x")],
        [("a/../../out", {}, b"x")],
        [("/out", {}, b"x")],
        [("l", {"type": LINK, "linkname": "/tmp"}, b""), ("l/out", {}, b"x")],
        [("l", {"type": LINK, "linkname": ".."}, b""), ("l/out", {"type": FOLDER}, b"")],
        [("h", {"type": HARD, "linkname": "/etc/passwd"}, b"")],
        [("h", {"type": HARD, "linkname": "../../etc/passwd"}, b"")],
        [("l", {"type": LINK, "linkname": "/etc/passwd"}, b""), ("h", {"type": HARD, "linkname": "l"}, b"")],
        [("mem", {"type": DEVICE, "devmajor": 1, "devminor": 1}, b"")],
        [("pipe", {"type": tarfile.FIFOTYPE}, b"")],
        [("d/x", {}, b"x"), ("d", {}, b"now a file")],
        [("f", {}, b"x"), ("f/below", {}, b"x")],
        [(f"f{n}", {}, b"") for n in range(60)],
        [("large", {}, bytes(5000))],
        [("/".join("d" * 150), {}, b"")],
        [(".wh...", {}, b"")],
    ],
)
def test_an_archive_that_means_harm_is_refused_whole(
    store: LayerStore, tmp_path: Path, members: list[tuple[str, dict[str, object], bytes]]
) -> None:
    """Test 45 of docs/sandbox.md, the part of the layers."""
    source = tmp_path / "hostile.tar"
    source.write_bytes(_archive(("fine", {}, b"ok"), *members))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsafeContent):
        load(store, source, bounds=Bounds(max_bytes=4096, max_entries=50))
    assert sorted(tmp_path.iterdir()) == before
    assert not list(store.layers.iterdir()) and not list(store.snapshots.iterdir())


def test_an_archive_that_ends_early_or_lies_about_its_size_is_refused(store: LayerStore, tmp_path: Path) -> None:
    """Test 45 of docs/sandbox.md: a header that promises gigabytes costs none."""
    whole = _archive(("fine", {}, b"ok" * 3000))
    huge = tarfile.TarInfo("x")
    huge.type, huge.size = tarfile.XHDTYPE, 10 << 30
    for data in (whole[:2000], huge.tobuf(tarfile.GNU_FORMAT), b"no tar at all" * 100):
        (tmp_path / "bad.tar").write_bytes(data)
        with pytest.raises(LayerError):
            load(store, tmp_path / "bad.tar")
    assert not list(store.layers.iterdir())


def test_what_comes_twice_counts_the_last_time_and_devices_of_dev_stay_out(store: LayerStore, tmp_path: Path) -> None:
    node = ("dev/null", {"type": DEVICE, "devmajor": 1, "devminor": 3}, b"")
    link = ("a", {"type": LINK, "linkname": "/etc"}, b"")
    (tmp_path / "root.tar").write_bytes(_archive(("a", {}, b"1"), link, ("a", {"mode": 0o4755}, b"22"), node))
    entries = LayerView.of(store, load(store, tmp_path / "root.tar").snapshot).entries
    assert (entries["a"].size, entries["a"].mode, sorted(entries)) == (2, 0o755, ["a", "dev"])


def test_an_image_whose_parts_are_not_what_their_digests_say_is_refused(store: LayerStore, tmp_path: Path) -> None:
    held = stack(store, tmp_path, *CHAIN)
    archive = _exported(store, held, tmp_path / "it.tar")
    folder = _made(tmp_path / "oci")
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    for blob in sorted((folder / "blobs/sha256").iterdir()):
        kept = blob.read_bytes()
        blob.write_bytes(kept.replace(b"o", b"0", 1) if b"o" in kept else kept[:-1])
        with LayerStore(tmp_path / "elsewhere") as other, pytest.raises(BadImage):
            load(other, folder)
        blob.write_bytes(kept)
    assert load(store, folder).snapshot == held.snapshot
    assert Snapshot() != held.snapshot
