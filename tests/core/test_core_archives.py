"""What is let through from an archive of other people stays below its folder and within its limits; damage is never a shorter archive."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Collection, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etude.core.archives import (
    EVERY_KIND,
    ArchiveError,
    ArchiveLimits,
    BoundedStream,
    EntryCounter,
    EntryKind,
    open_tar,
    plain_path,
    require_link_inside,
    tar_content,
    tar_entries,
    zip_entries,
)

ROOM = ArchiveLimits(entries=100, total_bytes=10_000)
TYPES: dict[EntryKind, bytes] = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
}
Row = tuple[str, EntryKind, bytes, str]  # name, kind, content, target


def tar(rows: Sequence[Row], format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, errors="surrogateescape") as archive:
        for name, kind, content, target in rows:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = TYPES[kind], target, len(content) if kind == "file" else 0
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def read(
    data: bytes, limits: ArchiveLimits = ROOM, takes: Collection[EntryKind] = EVERY_KIND, streamed: bool = False
) -> list[Row]:
    with open_tar(io.BytesIO(data), mode="r|" if streamed else "r:", errors="surrogateescape") as archive:
        return [
            (path, kind, tar_content(archive, member) if kind == "file" else b"", member.linkname)
            for path, kind, member in tar_entries(archive, EntryCounter(limits), takes)
        ]


NAMES = st.text(st.sampled_from("ab./\\é \udcff"), min_size=1, max_size=12)
KINDS = st.sampled_from(EVERY_KIND)
ROWS = st.lists(st.tuples(NAMES, KINDS, st.binary(max_size=700), NAMES), max_size=6)


def is_inside(path: str) -> bool:
    parts = path.split("/")
    return not path.startswith("/") and not {"", ".", ".."} & {*parts} and "\0" not in path


@example(rows=[("/", "folder", b"", "x")], streamed=False, format=tarfile.GNU_FORMAT)
@given(rows=ROWS, streamed=st.booleans(), format=st.sampled_from((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)))
def test_whatever_is_let_through_stays_below_its_folder_and_is_whole(
    rows: list[Row], streamed: bool, format: int
) -> None:
    try:
        found = read(tar(rows, format), streamed=streamed)
    except ArchiveError:
        assert any(
            row[0].startswith("/") or ".." in row[0].split("/") or (plain_path(row[0]) == "" and row[1] != "folder")
            for row in rows
        )
        return
    assert all(is_inside(path) for path, *_ in found)
    # tarfile drops slashes at the end of a folder's name, so a folder "/" is the folder itself.
    sent = [(name.rstrip("/") if kind == "folder" else name, kind, content) for name, kind, content, _ in rows]
    assert [(path, kind, content) for path, kind, content, _ in found] == [
        (plain_path(name), kind, content if kind == "file" else b"") for name, kind, content in sent if plain_path(name)
    ]


@given(path=NAMES, target=NAMES)
def test_a_link_that_is_let_through_cannot_leave_through_real_folders(path: str, target: str) -> None:
    try:
        place = plain_path(path)
        require_link_inside(place, target)
    except ArchiveError:
        return
    at = place.split("/")[:-1]
    for part in (part for part in target.split("/") if part not in ("", ".")):
        assert part != ".." or at, (path, target)
        at = at[:-1] if part == ".." else [*at, part]


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x", "", "a\0", "b/.."])
def test_links_out_are_refused_with_both_names(target: str) -> None:
    with pytest.raises(ArchiveError, match="link 'door' to .* leads out of the folder, or may"):
        require_link_inside("door", target)


@pytest.mark.parametrize(
    ("name", "said"),
    [("/a", "leads out"), ("a/../b", "leads out"), ("..", "leads out"), ("a\0b", "NUL in the path")],
)
def test_a_path_that_leads_out_is_refused(name: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        plain_path(name)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_kind_that_the_caller_does_not_take_is_refused(kind: EntryKind) -> None:
    others = [other for other in EVERY_KIND if other != kind]
    with pytest.raises(ArchiveError, match=f"'x' is a {kind}; an archive may hold {', '.join(others)} here"):
        read(tar([("x", kind, b"", "y")]), takes=others)


def test_devices_are_refused_unless_they_are_asked_for() -> None:
    data = tar([("x", "device", b"", "")])
    with open_tar(io.BytesIO(data)) as archive, pytest.raises(ArchiveError, match="is a device"):
        list(tar_entries(archive, EntryCounter(ROOM)))
    assert [row[:2] for row in read(data)] == [("x", "device")]


@pytest.mark.parametrize("kind", ["file", "link", "hard link", "device"])
def test_nothing_but_a_folder_takes_the_place_of_the_folder_itself(kind: EntryKind) -> None:
    assert read(tar([(".", "folder", b"", "")])) == []
    with pytest.raises(ArchiveError, match="would take the folder's own place"):
        read(tar([(".", kind, b"", "x")]))


@pytest.mark.parametrize(
    ("rows", "limits", "said"),
    [
        ([(f"d{i}", "folder", b"", "") for i in range(4)], {"entries": 3}, "more than 3 entries"),
        ([("a", "file", bytes(60), ""), ("b", "file", bytes(60), "")], {"total_bytes": 100}, "more than 100 bytes"),
        ([("x" * 300, "file", b"", "")], {"path_bytes": 200}, "path longer than 200 bytes"),
        ([("x" * 300, "file", b"", "")], {}, "name longer than 255 bytes"),
        ([("d/" * 9 + "x", "file", b"", "")], {"depth": 9}, "folders nest deeper than 9"),
    ],
)
def test_each_limit_is_kept_and_named(rows: list[Row], limits: dict[str, int], said: str) -> None:
    bounded = ArchiveLimits(**{"entries": 100, "total_bytes": 10_000, **limits})
    with pytest.raises(ArchiveError, match=said):
        read(tar(rows), bounded)


@pytest.mark.parametrize("streamed", [False, True])
def test_cut_at_any_byte_it_is_an_error_or_the_whole(streamed: bool) -> None:
    data = tar([("a", "file", b"1" * 700, ""), ("d", "folder", b"", ""), ("d/" + "n" * 120, "file", b"2", "")])
    whole = read(data)
    for cut in range(0, len(data), 37):
        try:
            assert read(data[:cut], streamed=streamed) == whole
        except (ArchiveError, tarfile.TarError, EOFError):
            pass


def test_a_damaged_header_in_the_middle_is_not_the_end() -> None:
    data = bytearray(tar([("a", "file", b"x", ""), ("b", "file", b"y", "")], tarfile.GNU_FORMAT))
    data[1024 + 10] ^= 0xFF
    with pytest.raises(tarfile.ReadError, match="at byte 1,024"):
        read(bytes(data))


def test_a_negative_size_is_refused_and_not_followed() -> None:
    header = bytearray(tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"  # -256 in base 256
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    with pytest.raises(tarfile.ReadError, match="a size of -256, at byte 512"):
        read(bytes(header) * 3 + bytes(1024))


def test_a_stream_without_end_is_bounded() -> None:
    stream = BoundedStream(io.BytesIO(bytes(1000)), 600)
    assert len(stream.read(600)) == 600
    with pytest.raises(ArchiveError, match="more than 600 bytes"):
        stream.read(1)


@given(names=st.lists(NAMES.filter(lambda name: "\udcff" not in name), max_size=5))
def test_names_in_a_zip_archive_stay_below_too(names: list[str]) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in dict.fromkeys(names):
            archive.writestr(zipfile.ZipInfo(name), b"x")
    with zipfile.ZipFile(out) as archive:
        try:
            assert all(is_inside(path) for path, _, _ in zip_entries(archive, EntryCounter(ROOM)))
        except ArchiveError as error:
            assert "leads out" in str(error) or "own place" in str(error)


@pytest.mark.parametrize(("mode", "kind"), [(0o120777, "link"), (0o010644, "device"), (0o100644, "file"), (0, "file")])
def test_the_kind_of_an_entry_of_a_zip_archive_is_its_mode(mode: int, kind: EntryKind) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("x")
        info.external_attr = mode << 16
        archive.writestr(info, b"y")
    with zipfile.ZipFile(out) as archive:
        assert [entry.kind for entry in zip_entries(archive, EntryCounter(ROOM), EVERY_KIND)] == [kind]
