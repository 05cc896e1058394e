"""Archives are looked through whole before any of them is sent: whatever is let through leads nowhere else."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.errors import UserError
from etude.sandbox.fake import archive as fake_archive
from etude.sandbox.fake.files import FakeFiles
from etude.sandbox.inside import frames
from etude.sandbox.wire import archive as archives

names = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=5).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])


@given(st.lists(st.tuples(names, kinds, names), max_size=5))
def test_whatever_is_let_through_stays_below_its_folder(members: list[tuple[str, bytes, str]]) -> None:
    """Test 45 of docs/sandbox.md."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            tar.addfile(info)
    try:
        parts = archives.parts(held.getvalue(), 1000)
    except UserError:
        return
    places: dict[str, str] = {}
    for head, _ in parts:
        for name, kind, _, _, _, target in head["entries"]:
            assert name and not set(name.split("/")) & {"", ".", ".."}
            assert name not in places
            above = name.split("/")[:-1]
            assert all(places.get("/".join(above[:depth]), "dir") == "dir" for depth in range(1, len(above) + 1))
            places[name] = kind
            if kind == "link":
                assert not target.startswith("/") and target.split("/").count("..") <= len(above)


@given(st.binary(max_size=3000))
def test_random_bytes_are_an_archive_or_a_user_error(data: bytes) -> None:
    try:
        archives.parts(data, 1000)
    except UserError:
        return


@pytest.mark.parametrize("mtime", [2.0**40, -(2.0**40), 1e300, float("inf"), float("nan")])
def test_a_time_that_no_file_can_have_is_refused_before_a_runner_dies_of_it(mtime: float) -> None:
    """Test 45 of docs/sandbox.md."""
    with pytest.raises(UserError):
        archives.parts(_tar(("a", mtime)), 1000)


@pytest.mark.parametrize("name", ["a/" * 200 + "b", "a" * 250 + "/" + "b/" * 10 + "c" * 4000])
def test_a_short_archive_of_long_names_costs_no_memory_to_speak_of(name: str) -> None:
    """Test 45 of docs/sandbox.md: each of its folders would be kept by its whole path, 60 GB for a name of 500 KB."""
    with pytest.raises(UserError, match="deeper than 128|longer than 4,096"):
        archives.parts(_tar((name, 0)), 1000)


def test_folders_that_names_imply_count_as_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 100)
    with pytest.raises(UserError, match="imply"):
        archives.parts(_tar(*((f"{number}/" * 60 + "x", 0) for number in range(2))), 1000)


async def test_a_hostile_runner_can_fill_a_download_neither_with_names_nor_with_empty_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Test 50 of docs/sandbox.md."""
    monkeypatch.setattr(archives, "_MOST_NAMES", 100)
    entry = ["a", "file", 0o644, 0, 0, ""]
    with pytest.raises(frames.FrameError):
        archives.Download(1000).take(_tree([entry, entry]), [])
    endless = archives.Download(1000)
    for name in "abc":
        endless.take(_tree([[name * 60, *entry[1:]]]), [])
    assert len(endless._entries) <= 1


def _tree(entries: list[list[object]]) -> frames.Frame:
    return frames.Frame(frames.TREE, 1, {"entries": entries, "last": False}, b"")


def _tar(*members: tuple[str, float]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, mtime in members:
            info = tarfile.TarInfo(name)
            info.pax_headers = {"mtime": str(mtime)}
            tar.addfile(info)
    return held.getvalue()


@pytest.mark.parametrize("reader", ["wire", "fake"])
def test_an_archive_that_is_cut_is_put_whole_or_refused(reader: str) -> None:
    whole = _tar(("a", 1.0), ("folder", 1.0), ("b", 1.0))[: 9 * 512 + 1024]  # three blocks each, and the end
    for cut in range(len(whole)):
        files = FakeFiles("/w", 1 << 20)
        try:
            if reader == "wire":
                names = {entry[0] for head, _ in archives.parts(whole[:cut], 1000) for entry in head["entries"]}
            else:
                fake_archive.unpack(files, "/w", whole[:cut])
                names = {name.removeprefix("w/") for name in files.names()}
        except UserError:
            assert cut < 10 * 512
        else:
            assert names == {"a", "folder", "b"} and cut >= 10 * 512
