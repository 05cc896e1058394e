"""An archive that is cut anywhere, or damaged in a header, is refused: no reader takes a part of it for the whole."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from etude.core.archives import open_tar
from etude.sandbox.layers.errors import LayerError, UnsafeContent
from etude.sandbox.layers.image import load
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.view import LayerView

NAMES = {"a", "folder", "folder/b", "link"}


def archive(format: int = tarfile.PAX_FORMAT) -> bytes:
    """A file, a folder with a file of a long path, a link; without the padding of whole records that tar writes at the end."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=format) as tar:
        for name, kind, data in (
            ("a", tarfile.REGTYPE, b"1" * 700),
            ("folder", tarfile.DIRTYPE, b""),
            ("folder/b", tarfile.REGTYPE, b"x"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data)
            info.pax_headers = {"SCHILY.xattr.user.k": "v"} if name == "folder/b" else {}
            tar.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "t" * 150
        tar.addfile(info)
        end = held.tell()
    return held.getvalue()[: end + 1024]


def whole_end(data: bytes) -> int:
    """Where a reader has seen all: behind the first block of zeros."""
    return len(data) - 512


FORMATS = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}


@pytest.mark.parametrize("format", FORMATS)
def test_cut_at_any_byte_the_whole_content_comes_or_an_error(format: str) -> None:
    data = archive(FORMATS[format])
    for cut in range(len(data) + 1):
        try:
            with open_tar(io.BytesIO(data[:cut])) as tar:
                found = {
                    member.name: (tar.extractfile(member) or io.BytesIO()).read() if member.isreg() else b""
                    for member in tar
                }
        except tarfile.TarError:
            assert cut < whole_end(data), cut
        else:
            assert set(found) == NAMES and len(found["a"]) == 700 and cut >= whole_end(data), cut


CUTS = [0, 1, 511, 512, 700, 1024, 1211, 1536, 1600, 2048, 2560, 3000]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_root_file_system_is_no_image_and_nothing_of_it_stays(
    store: LayerStore, tmp_path: Path, cut: int
) -> None:
    (tmp_path / "root.tar").write_bytes(archive()[:cut])
    with pytest.raises(LayerError) as error:
        load(store, tmp_path / "root.tar")
    assert "\n" not in str(error.value)
    assert not list(store.layers.iterdir()) and not list(store.snapshots.iterdir())


def test_the_place_of_the_cut_is_named(store: LayerStore, tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(archive()[: 1536 + 188])
    with pytest.raises(LayerError, match="cut in a header, at byte 1,536"):
        load(store, tmp_path / "root.tar")


def test_a_damaged_header_in_the_middle_is_not_the_end(store: LayerStore, tmp_path: Path) -> None:
    data = bytearray(archive())
    data[1536 + 150] ^= 1  # the second header's checksum
    (tmp_path / "root.tar").write_bytes(bytes(data))
    with pytest.raises(LayerError):
        load(store, tmp_path / "root.tar")


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd without a size": lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
}


@pytest.mark.parametrize("kind", PACKED)
def test_cut_within_its_compression_the_whole_content_comes_or_an_error(
    store: LayerStore, tmp_path: Path, kind: str
) -> None:
    data = PACKED[kind](archive())
    for cut in range(4, len(data), 7):
        (tmp_path / "root.tar").write_bytes(data[:cut])
        try:
            held = load(store, tmp_path / "root.tar")
        except LayerError:
            continue
        assert set(LayerView.of(store, held.snapshot).entries) >= NAMES
        held.release()


def test_frames_of_zstd_one_behind_another_are_one_archive(store: LayerStore, tmp_path: Path) -> None:
    data = archive()
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "root.tar").write_bytes(pack(data[:900]) + pack(data[900:]))
    with load(store, tmp_path / "root.tar") as held:
        assert set(LayerView.of(store, held.snapshot).entries) >= NAMES


def image(folder: Path, layer: bytes, cut: int | None) -> Path:
    """What `docker save` writes, its layer without an end."""
    import hashlib

    config = {"rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}, "config": {}}
    parts = {"manifest.json": json.dumps([{"Config": "c.json", "Layers": ["l.tar"]}]).encode()}
    parts |= {"c.json": json.dumps(config).encode(), "l.tar": layer}
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    (folder / "image.tar").write_bytes(held.getvalue()[:cut])
    return folder / "image.tar"


def test_a_layer_whose_digest_is_known_may_lack_the_mark_of_its_end(store: LayerStore, tmp_path: Path) -> None:
    with load(store, image(tmp_path, archive()[:-1024], None)) as held:
        assert set(LayerView.of(store, held.snapshot).entries) >= NAMES


@pytest.mark.parametrize("cut", [600, 1100, 1600, 2100, 4000])
def test_a_cut_image_is_refused(store: LayerStore, tmp_path: Path, cut: int) -> None:
    with pytest.raises((LayerError, UnsafeContent)):
        load(store, image(tmp_path, archive(), cut))
