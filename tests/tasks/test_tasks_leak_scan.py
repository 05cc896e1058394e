"""The leak scan of files (`auditing/inside.py`): an archive that can't be searched whole is listed with the reason, and is never taken for clean."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.auditing import inside
from etude.tasks.auditing.inside import MOST_BYTES, MOST_UNREAD, WindowSearch
from etude.tasks.checking.check import CheckRow, summary

SECRET = b"def halved(items):\n    return len(items) // 2\nassert halved([1, 2]) == 1\n"
BLOCK = 512
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
PACKERS = (bytes, gzip.compress, bz2.compress, lzma.compress)


def search(data: bytes, path: str = "/tmp/any.tar") -> WindowSearch:
    """Looks for SECRET's three lines."""
    window = "\n".join(line.strip() for line in SECRET.decode().splitlines())
    made = WindowSearch({"least": [1, 1], "windows": [[window], []], "names": [], "stems": [], "project": ""})
    made.look(path, data, 0)
    return made


def tar_of(*contents: bytes, format: int = tarfile.USTAR_FORMAT, name: str = "member") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format) as archive:
        for number, content in enumerate(contents):
            member = tarfile.TarInfo(f"{name}{number}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zip_of(*contents: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"member{number}", content)
    return packed.getvalue()


# Headers at bytes 0, 1536 and 3072; the last member holds the secret; the end is marked from byte 4096.
WHOLE = tar_of(b"x" * 700, b"y" * 700, SECRET)
HEADERS, END = (0, 1536, 3072), 4096


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_whole_archive_is_searched_to_its_end_and_nothing_is_reported(format: int, pack):
    name = "long/" * 30 if format != tarfile.USTAR_FORMAT else "short"
    found = search(pack(tar_of(b"x" * 700, SECRET, format=format, name=name)), "/tmp/any.bin")
    assert [one["path"] for one in found.found] == [f"/tmp/any.bin!{name}1"] and found.unread == []


@pytest.mark.parametrize("damage", [0, 148, 156, 257], ids=["name", "checksum", "kind", "magic"])
@pytest.mark.parametrize("header", HEADERS)
def test_a_damaged_header_is_reported_and_the_members_behind_it_are_searched(header: int, damage: int):
    damaged = bytearray(WHOLE)
    damaged[header + damage] ^= 0x5A
    found = search(bytes(damaged))
    assert len(found.unread) == 1 and "a damaged tar archive" in found.unread[0] and f"byte {header}" in found.unread[0]
    assert bool(found.found) == (header != HEADERS[-1])


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_of_zeros_within_an_archive_is_not_its_end(header: int):
    found = search(WHOLE[:header] + bytes(BLOCK) + WHOLE[header + BLOCK :])
    assert len(found.unread) == 1 and "behind the mark of its end" in found.unread[0]
    assert bool(found.found) == (header != HEADERS[-1])


@given(cut=st.integers(1, END))
def test_a_cut_archive_is_reported_wherever_it_is_cut(cut: int):
    assert len(search(WHOLE[:cut]).unread) >= 1


@given(at=st.integers(0, END - 1), other=st.integers(1, 255))
def test_no_damaged_byte_hides_what_a_member_holds(at: int, other: int):
    damaged = bytearray(WHOLE)
    damaged[at] ^= other
    found = search(bytes(damaged))
    in_secret = HEADERS[-1] + BLOCK <= at < HEADERS[-1] + BLOCK + len(SECRET)  # text has no checksum
    assert found.found or found.unread or in_secret


@pytest.mark.parametrize("pack", PACKERS[1:])
def test_a_compressed_archive_that_is_cut_or_damaged_is_reported(pack):
    packed = pack(WHOLE)
    for at in range(8, len(packed) - 9, 5):
        damaged = bytearray(packed)
        damaged[at] ^= 0x55
        both = search(bytes(damaged), "/tmp/any.bin"), search(packed[:at], "/tmp/any.bin")
        assert both[0].unread or both[0].found, at
        assert both[1].unread, at


def test_a_compressed_file_that_is_no_tar_archive_is_reported_as_such():
    assert search(gzip.compress(b"a log\n"), "/tmp/log.gz").unread == [
        "/tmp/log.gz: compressed, and no whole tar archive: truncated header at byte 0"
    ]


def test_a_zip_archive_that_is_cut_or_damaged_is_reported():
    whole = zip_of(b"x" * 700, b"y" * 700, SECRET)
    assert search(whole).found and not search(whole).unread
    for at in range(4, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        found = search(bytes(damaged))
        assert found.unread or found.found, at
        assert search(whole[:at]).unread, at


def test_a_damaged_member_of_a_zip_archive_leaves_the_others_searched():
    whole = zip_of(b"x" * 700, SECRET)
    damaged = bytearray(whole)
    damaged[14] ^= 0x55  # the first member's checksum in its local header ...
    damaged[whole.index(b"PK\x01\x02") + 16] ^= 0x55  # ... and in the directory
    found = search(bytes(damaged), "/tmp/any.zip")
    assert [one["path"] for one in found.found] == ["/tmp/any.zip!member1"]
    assert len(found.unread) == 1 and found.unread[0].startswith("/tmp/any.zip!member0: a damaged member")


def test_members_that_are_too_large_or_too_deep_are_reported():
    found = search(gzip.compress(tar_of(bytes(MOST_BYTES + 1), SECRET)))
    assert found.unread == [f"/tmp/any.tar!member0: over {MOST_BYTES} bytes"] and len(found.found) == 1
    deep = tar_of(tar_of(tar_of(SECRET)))
    assert search(deep).unread == ["/tmp/any.tar!member0!member0: an archive within 2 others"]


def test_a_compression_bomb_is_searched_up_to_a_bound_and_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inside, "MOST_UNPACKED_BYTES", 1 << 16)
    bomb = search(gzip.compress(tar_of(SECRET) + bytes(1 << 20)), "/tmp/any.tgz")
    assert len(bomb.found) == 1 and bomb.unread == [
        "/tmp/any.tgz: a damaged tar archive: over 65536 bytes unpacked, only the first are searched"
    ]
    monkeypatch.setattr(inside, "MOST_UNPACKED_IN_ALL", 800)
    assert search(tar_of(b"x" * 700, SECRET)).found
    many = search(tar_of(b"x" * 700, b"y" * 700, SECRET))
    assert (
        not many.found
        and [row.partition(": ")[2] for row in many.unread] == ["behind the first 800 bytes of archives"] * 2
    )


def test_the_list_of_what_was_not_searched_is_bounded():
    found = search(b"")
    for number in range(MOST_UNREAD + 5):
        found.not_searched(f"/tmp/{number}", "no permission")
    assert len(found.unread) == MOST_UNREAD + 1 and "the others are not listed" in found.unread[-1]


def test_a_check_names_the_files_of_a_sound_task_that_could_not_be_searched():
    audit = {
        "unread": 2,
        "unread_files": ["/w/a.tar: a damaged tar archive: bad checksum at byte 512", "/w/b.tar: cut"],
    }
    assert summary(
        [CheckRow("bugs/tally/1", reference=1.0, audit=audit), CheckRow("bugs/tally/2", reference=1.0)]
    ).splitlines() == [
        "2 of 2 tasks are sound",
        "  bugs/tally/1: the leak scan could not search 2 files whole: "
        "/w/a.tar: a damaged tar archive: bad checksum at byte 512; /w/b.tar: cut",
    ]
