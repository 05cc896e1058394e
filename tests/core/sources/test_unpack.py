"""Honest archives come out as they are; hostile ones are refused with the reason, leave nothing behind and touch nothing outside."""

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib

import pytest
from archives import member, tar, zipped
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.core.sources import unpack as unpack_module
from etude.core.sources.project import ProjectRefused
from etude.core.sources.unpack import IMPORT, ROOT, UnpackLimits, top, unpack, work_folder

HONEST = {"a-1.0/src/a.py": b"print('a')\n" * 1000, "a-1.0/README": "Grüße\n".encode(), "a-1.0/empty": b""}
SMALL = UnpackLimits(total_bytes=4_000_000, file_bytes=1_000_000, entries=5_000, path_bytes=200)


@pytest.fixture
def into(tmp_path):
    """A folder with a neighbour that no archive may touch."""
    (tmp_path / "outside").write_text("mine")
    folder = tmp_path / "into"
    folder.mkdir()
    yield folder
    assert (tmp_path / "outside").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".bin") == ["into", "outside"]


def unpacked(data, into, limits=SMALL, **options):
    file = into.parent / "archive.bin"
    file.write_bytes(data)
    return unpack(file, into, limits, **options)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(data, into, limits=SMALL):
    with pytest.raises(ProjectRefused) as refused:
        unpacked(data, into, limits)
    return str(refused.value)


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_an_honest_tar_comes_out_as_it_is(into, compression):
    found = unpacked(tar(HONEST, compression), into)
    assert contents(into) == HONEST
    assert (found.files, found.bytes, found.skipped) == (3, sum(map(len, HONEST.values())), {})
    assert top(into) == into / "a-1.0"


def test_an_honest_zip_comes_out_as_it_is(into):
    assert unpacked(zipped({**HONEST, "a-1.0/empty folder/": b""}), into).files == 3
    assert contents(into) == HONEST


def test_modes_of_the_archive_are_ignored(into):
    info = member("run", tarfile.REGTYPE)
    info.mode = 0o6777
    unpacked(tar({}, more=[info]), into)
    assert (into / "run").stat().st_mode & 0o7777 == 0o600


def test_of_two_files_with_one_path_the_last_stays(into):
    info = io.BytesIO()
    with tarfile.open(fileobj=info, mode="w") as archive:
        for text in (b"first and longer", b"last"):
            entry = tarfile.TarInfo("a")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    unpacked(info.getvalue(), into)
    assert contents(into) == {"a": b"last"}


@pytest.mark.parametrize("make", [tar, zipped])
@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "a/..", "/tmp/outside", "//outside", "./../outside"])
def test_a_path_that_climbs_out_is_refused(into, make, name):
    assert "path" in refusal(make({"good": b"x", name: b"gone"}), into)


def test_a_file_is_not_written_through_a_link(into):
    link = member("door", tarfile.SYMTYPE, "..")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(link)
        archive.addfile(member("outlink", tarfile.SYMTYPE, "../outside"))
        for name in ("door/outside", "outlink"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"gone"))
    assert unpacked(data.getvalue(), into).skipped == {"link": 2}
    assert contents(into) == {"door/outside": b"gone", "outlink": b"gone"}


def test_a_link_in_a_zip_is_left_out(into):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        link = zipfile.ZipInfo("door")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "../outside")
        archive.writestr("door/outside", "gone")
    assert unpacked(data.getvalue(), into).skipped == {"link": 1}
    assert contents(into) == {"door/outside": b"gone"}


def test_hard_links_devices_and_pipes_are_left_out(into):
    more = [
        member("hard", tarfile.LNKTYPE, "../outside"),
        member("absolute", tarfile.LNKTYPE, "/etc/passwd"),
        member("char", tarfile.CHRTYPE),
        member("block", tarfile.BLKTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ]
    assert unpacked(tar({"a": b"x"}, more=more), into).skipped == {"link": 2, "device": 3}
    assert contents(into) == {"a": b"x"}


def test_a_header_that_claims_more_than_there_is_is_refused(into):
    data = bytearray(tar({"a": b"x" * 10}, ""))
    header = tarfile.TarInfo("a")
    header.size = 900_000
    data[:512] = header.tobuf(tarfile.USTAR_FORMAT)
    assert "damaged" in refusal(bytes(data), into)


def test_a_header_that_claims_less_than_there_is_is_refused(into):
    data = bytearray(tar({"a": b"lies " * 400, "b": b"x"}, ""))
    header = tarfile.TarInfo("a")
    header.size = 10
    data[:512] = header.tobuf(tarfile.USTAR_FORMAT)
    assert "damaged" in refusal(bytes(data), into)


def test_a_negative_size_ends(into):
    header = bytearray(tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"  # base-256, minus 256
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:]))
    assert "a size of -256" in refusal(bytes(header) * 3 + bytes(1024), into)


def test_a_zip_that_lies_about_a_size_is_refused(into):
    data = bytearray(zipped({"a": b"x" * 5000}))
    at = data.rindex(b"PK\1\2") + 24  # the size in the directory
    data[at : at + 4] = struct.pack("<I", 50)
    assert "damaged" in refusal(bytes(data), into)


def test_a_sparse_file_of_a_terabyte_is_left_out(into):
    info = member("sparse", tarfile.REGTYPE)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**40)}
    map_block = b"1\n0\n0\n".ljust(512, b"\0")
    info.size = len(map_block)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(map_block))
    assert unpacked(data.getvalue(), into).skipped == {"file too large": 1}


def test_a_bomb_is_stopped_at_the_total(into):
    names = {f"zeros{i}": bytes(900_000) for i in range(20)}
    for bomb in (tar(names), zipped(names)):
        assert "more than 4,000,000 bytes unpacked" in refusal(bomb, into)
    assert sum(map(len, contents(into).values())) <= SMALL.total_bytes


def test_a_bomb_that_writes_no_file_is_stopped(into):
    # The data of a device: nothing would be written, but it has to be decompressed.
    info = member("null", tarfile.REGTYPE)
    info.size = 100_000_000
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    packer = zlib.compressobj(1, wbits=31)
    data = (
        packer.compress(bytes(header))
        + b"".join(packer.compress(bytes(1_000_000)) for _ in range(400))
        + packer.flush()
    )
    assert "bytes unpacked" in refusal(data, into)


def test_a_million_tiny_files_are_stopped_at_the_limit(into):
    entry = tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT)
    # One compressed block of a thousand headers, a thousand times: a full flush makes blocks independent.
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = zlib.compressobj(9, wbits=-15)
    thousand = block.compress(entry * 1000) + block.flush(zlib.Z_FULL_FLUSH)
    assert "more than 5,000 entries" in refusal(start + thousand * 1000, into)


def test_a_million_entries_of_a_zip_are_stopped_at_the_limit(into):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for i in range(5_001):
            archive.writestr(f"{i}/", b"")
    assert "more than 5,000 entries" in refusal(data.getvalue(), into)


def test_a_path_without_end_is_refused(into):
    assert "path longer than 200 bytes" in refusal(tar({"d/" * 5000 + "a": b"x"}), into)


def test_a_header_of_a_gigabyte_is_refused(into):
    # A long name's data is read into memory by the library.
    info = member("name", tarfile.GNUTYPE_LONGNAME)
    info.size = 2**30
    data = info.tobuf(tarfile.GNU_FORMAT) + bytes(3_000_000)
    assert refusal(data, into)
    packer = zlib.compressobj(1, wbits=31)
    data = packer.compress(info.tobuf(tarfile.GNU_FORMAT))
    data += b"".join(packer.compress(b"x" * 1_000_000) for _ in range(150)) + packer.flush()
    assert "memory" in refusal(data, into, UnpackLimits(memory_bytes=120_000_000))


@pytest.mark.parametrize("cut", [10, 200, -20, -1])
@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_truncated_archive_is_refused(into, compression, cut):
    whole = tar({"a": os.urandom(5000), "b": b"x" * 5000}, compression)
    assert "damaged" in refusal(whole[:cut], into) or cut == 10


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(into):
    data = bytearray(tar({"a": b"x" * 512, "b": b"y" * 512}, ""))
    data[1024 + 10] ^= 0xFF
    assert "damaged" in refusal(bytes(data), into)


def test_a_flipped_byte_in_compressed_data_is_refused(into):
    data = bytearray(tar({"a": os.urandom(20_000)}))
    data[10_000] ^= 0xFF
    assert refusal(bytes(data), into)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"MZ" + bytes(600), b"\x1f\x8b", b"PK\3\4" + bytes(100), b"BZh9" + bytes(50)]
)
def test_what_is_no_archive_is_refused(into, data):
    assert refusal(data, into)


def test_names_that_no_text_can_be_filed_under_are_left_out(into):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", encoding="latin-1", format=tarfile.GNU_FORMAT) as archive:
        for name in ("café", "a\nb", "\x1b[2Jc", "right\u00e9"):
            archive.addfile(tarfile.TarInfo(name))
    assert unpacked(data.getvalue(), into).skipped == {"unprintable name": 4}
    info = tarfile.TarInfo("x")
    info.pax_headers = {"path": "a\0b"}
    assert "NUL" in refusal(tar({}, more=[info]), into)


def test_an_encrypted_zip_is_refused(into):
    data = bytearray(zipped({"a": b"x"}))
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + offset] |= 1
    assert "encrypted" in refusal(bytes(data), into)


def test_a_file_where_a_folder_should_be_is_refused(into):
    assert "damaged" in refusal(tar({"a": b"x", "a/b": b"y"}), into)


def test_a_file_above_the_limit_is_left_out_and_its_project_stays(into):
    assert unpacked(tar({"data": bytes(1_000_001), "a": b"x"}), into).skipped == {"file too large": 1}
    assert contents(into) == {"a": b"x"}


def test_time_is_limited(into):
    # Twenty gigabytes of zeros in 20 MB: seconds of decompression, cut off after one.
    block = zlib.compressobj(9, wbits=-15)
    zeros = block.compress(bytes(10_000_000)) + block.flush(zlib.Z_FULL_FLUSH)
    info = member("zeros", tarfile.REGTYPE)
    info.size = 20_000_000_000 - 1  # in octal digits it must fit
    header = zlib.compressobj(9, wbits=31)
    header_text = info.tobuf(tarfile.GNU_FORMAT)
    data = header.compress(header_text) + header.flush(zlib.Z_FULL_FLUSH) + zeros * 2000
    assert "signal" in refusal(data, into, UnpackLimits(cpu_s=1, total_bytes=2**40))


def test_the_child_inherits_neither_environment_nor_open_files(into, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    seen = {}
    run = subprocess.run

    def spied(command, **options):
        # The same start, with a program that tells what it sees in the place of the unpacker.
        tell = "import os, json; print(json.dumps([dict(os.environ), sorted(map(int, os.listdir('/proc/self/fd')))]))"
        seen["seen_inside"] = run([*command[: command.index("-X") + 2], "-c", tell], **options).stdout
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", spied)
    with open("/dev/null") as extra:
        os.set_inheritable(extra.fileno(), True)
        unpacked(tar(HONEST), into)
    environment, files = json.loads(seen["seen_inside"])
    assert set(environment) <= {"LD_LIBRARY_PATH", "LC_CTYPE"}
    assert files == [0, 1, 2, 3]  # 3: the listing itself


FULL_DISK = """
import errno, os
real = os.open
def full(path, flags, *rest, **named):
    if flags & os.O_CREAT:
        raise OSError(errno.ENOSPC, "No space left on device")
    return real(path, flags, *rest, **named)
os.open = full
"""


def test_a_full_disk_is_the_machines_fault_not_the_archives(into, monkeypatch):
    monkeypatch.setattr(unpack_module, "IMPORT", FULL_DISK + IMPORT)
    with pytest.raises(OSError, match="can't unpack into .* No space left"):
        unpacked(tar(HONEST), into)


def test_a_work_folder_is_gone_afterwards_and_so_are_those_of_the_dead(tmp_path):
    host = os.uname().nodename
    elsewhere, living, dead = (f"open-{name}-x" for name in ("far-999999999", f"{host}-1", f"{host}-999999999"))
    for name in (elsewhere, living, dead):
        (tmp_path / name).mkdir()
    with pytest.raises(ProjectRefused), work_folder(tmp_path) as folder:
        (folder / "half").write_text("x")
        raise ProjectRefused("damaged")
    assert {path.name for path in tmp_path.iterdir()} == {elsewhere, living}


NAMES = st.text(st.sampled_from("ab./\\~é\n\0\udcff "), min_size=1, max_size=12)


@given(names=st.lists(NAMES, min_size=1, max_size=5), zip_it=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_leads_outside(tmp_path_factory, names, zip_it):
    outer = tmp_path_factory.mktemp("outer")
    into = outer / "deep" / "into"
    into.mkdir(parents=True)
    if zip_it:
        data = zipped({name.replace("\udcff", "x").replace("\0", "x"): b"x" for name in names})
    else:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(name))
        data = data.getvalue()
    try:
        unpacked(gzip.compress(data) if not zip_it else data, into)
    except ProjectRefused:
        pass
    assert {path.name for path in outer.iterdir()} == {"deep"}
    assert {path.name for path in (outer / "deep").iterdir()} <= {"into", "archive.bin"}
    assert not any(path.is_symlink() for path in into.rglob("*"))


def test_the_unpacker_runs_on_the_bare_interpreter():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT, str(ROOT), "{}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "KeyError: 'memory_bytes'" in done.stderr
