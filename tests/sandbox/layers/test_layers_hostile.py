"""What a hostile tree, archive or image says is its own fault: Hostile or BadImage, never a fault of the store, and never a full disk."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from layers_upper import opened, write

from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.errors import BadImage, UnknownSnapshot, UnsafeContent
from etude.sandbox.layers.image import load
from etude.sandbox.layers.names import BadName
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore


def test_a_path_that_could_not_be_looked_at_again_is_refused_when_a_snapshot_is_made(
    store: LayerStore, tmp_path: Path
) -> None:
    """Else a restore would meet a corrupt layer."""
    upper = tmp_path / "upper"
    upper.mkdir()
    fd = os.open(upper, os.O_RDONLY)
    for _ in range(18):
        os.mkdir("d" * 240, dir_fd=fd)
        below = os.open("d" * 240, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    with opened(upper) as source, pytest.raises(UnsafeContent, match="a path of"):
        store.ingest(source, Snapshot())


def test_attributes_that_no_disk_keeps_are_no_full_disk(store: LayerStore, tmp_path: Path) -> None:
    upper = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    upper = upper / f"etude-test-{os.getpid()}"
    write(upper, {"a": b"1"})
    try:
        for number in range(40):
            os.setxattr(upper / "a", f"user.n{number}", b"x" * 100)
    except OSError as error:
        pytest.skip(f"no large attributes here: {error.strerror}")
    else:
        with opened(upper) as source, pytest.raises(UnsafeContent, match="attributes"):
            store.ingest(source, Snapshot())
    finally:
        (upper / "a").unlink()
        upper.rmdir()


@pytest.mark.parametrize("ref", ["\0" * 64, "\ud800", "../" * 21 + "a", "/" * 64, ""])
def test_what_can_not_be_a_name_names_no_snapshot(store: LayerStore, ref: str) -> None:
    with pytest.raises(UnknownSnapshot):
        store.resolve(ref)


def test_a_name_that_no_file_can_have_is_a_bad_name_before_anything_is_made(store: LayerStore, tmp_path: Path) -> None:
    write(tmp_path / "upper", {"a": b"1"})
    with opened(tmp_path / "upper") as source, pytest.raises(BadName):
        store.ingest(source, Snapshot(), name="a" + "/" * 150)
    assert not list(store.layers.iterdir())


def _tar(**fields: Any) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a")
        for name, value in fields.items():
            setattr(member, name, value)
        archive.addfile(member)
    return held.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        _tar(pax_headers={"mtime": "1e300"}),
        _tar(pax_headers={"mtime": "nan"}),
        _tar(pax_headers={"SCHILY.xattr.user.a": "x" * 5000}),
        _tar(pax_headers={"SCHILY.xattr.user.": "x"}),
        _tar(name="a" * 300),
        _tar(type=tarfile.SYMTYPE, linkname="x" * 5000),
        _tar(type=tarfile.SYMTYPE, linkname=""),
        gzip.compress(_tar())[:-20],
        b"\x28\xb5\x2f\xfd" + bytes(100),
        gzip.compress(_tar() + bytes(30_000_000)),
    ],
    ids=[
        "late",
        "no time",
        "attribute",
        "attribute without a name",
        "long",
        "far",
        "nowhere",
        "cut",
        "no zstd",
        "bomb",
    ],
)
def test_what_no_folder_can_hold_is_the_archives_fault(store: LayerStore, tmp_path: Path, archive: bytes) -> None:
    """Test 45 of docs/sandbox.md."""
    (tmp_path / "it.tar").write_bytes(archive)
    with pytest.raises((UnsafeContent, BadImage)):
        load(store, tmp_path / "it.tar", bounds=Bounds(max_bytes=1 << 20, max_entries=100))
    assert not list(store.layers.iterdir())


def _image(folder: Path, config: object, *, layers: int = 1, base: str | None = None) -> Path:
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return f"sha256:{digest}"

    layer = blob(_tar())
    said = {"config": config, "rootfs": {"diff_ids": [layer] * layers}}
    manifest: dict[str, object] = {
        "config": {"digest": blob(json.dumps(said).encode())},
        "layers": [{"digest": layer}] * layers,
    }
    if base is not None:
        manifest["annotations"] = {"org.etude.base": base}
    index = {"manifests": [{"digest": blob(json.dumps(manifest).encode())}]}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    "odd",
    [
        {"config": {"Env": ["=x"]}}, {"config": {"Env": ["A=\0"]}}, {"config": {"Env": ["A=\ud800"]}}, {"config": {"Env": "A=1"}},
        {"config": ["Env"]}, {"config": "x"}, {"config": {}, "layers": 101}, {"config": {}, "base": "-1"}, {"config": {}, "base": "2"},
    ],
)  # fmt: skip
def test_an_image_that_no_sandbox_could_be_born_of_is_refused_when_it_is_added(
    store: LayerStore, tmp_path: Path, odd: dict[str, Any]
) -> None:
    with pytest.raises(BadImage):
        load(store, _image(tmp_path / "image", **odd))


def test_a_record_that_nests_without_end_is_no_image(store: LayerStore, tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "index.json").write_text("[" * 200_000)
    with pytest.raises(BadImage):
        load(store, folder)
