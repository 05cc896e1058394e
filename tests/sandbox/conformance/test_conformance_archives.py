"""Archives in and out: what is put is got, and nothing hostile is unpacked, be it in part."""

from __future__ import annotations

import io
import tarfile

import pytest
from makers import MadePool

from etude.sandbox.errors import OutputLimit, UserError
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

Member = tuple[tarfile.TarInfo, bytes]


def _member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", size: int | None = None
) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if size is None else size
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info, data


def _tar(*members: Member) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for info, data in members:
            if len(data) == info.size:
                tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
            else:  # a header that lies; `addfile` of Python 3.13 refuses to write it
                tar.offset += held.write(info.tobuf(tar.format, tar.encoding or "utf-8", tar.errors or "strict"))
    return held.getvalue()


async def test_what_is_got_can_be_put_elsewhere_and_is_the_same(box: Sandbox) -> None:
    await box.run(
        "mkdir -p d/e; echo 1 > d/e/f; chmod 755 d/e/f; ln -s e/f d/link; head -c 3000000 /dev/urandom > big; : > empty;"
        " mkdir -m 500 shut; mkfifo pipe; touch -d 2001-01-01 d/e/f d/e"
    )
    await box.write(b"\xff name".decode(errors="surrogateescape"), b"odd")
    archive = await box.get_tar()
    assert archive == await box.get_tar()  # the same tree, the same bytes
    await box.put_tar("copy/below", archive)
    assert await box.get_tar("copy/below") == archive
    compared = await box.run("rm pipe; mv copy /tmp/copy; diff -r --no-dereference . /tmp/copy/below")
    assert (compared.rc, compared.out) == (0, b""), compared
    result = "import os; s = os.stat('/tmp/copy/below/d/e/f'); print(oct(s.st_mode), s.st_mtime)"  # the ls of coreutils 9 needs a newer gVisor
    dressed = await box.run(["python3", "-c", result])
    assert dressed.out == b"0o100755 978307200.0\n", dressed
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        names = tar.getnames()
    assert "pipe" not in names and names.index("d") < names.index("d/e") < names.index("d/e/f")


async def test_put_replaces_files_and_links_but_no_folder(box: Sandbox) -> None:
    await box.run("echo outside > /tmp/target; ln -s /tmp/target a; mkdir b; echo old > b/keep; ln -s /tmp l")
    await box.put_tar(".", _tar(_member("a", b"new"), _member("b", kind=tarfile.DIRTYPE), _member("b/more", b"2")))
    assert await box.read("a") == b"new" and await box.read("/tmp/target") == b"outside\n"
    assert await box.export("b") == {"keep": b"old\n", "more": b"2"}
    for members in ([_member("b", b"x")], [_member("b", kind=tarfile.SYMTYPE, link="a")]):
        with pytest.raises(UserError):
            await box.put_tar(".", _tar(*members))
    with pytest.raises(UserError):  # a link of the sandbox' own is followed as little as one of the archive
        await box.put_tar(".", _tar(_member("l/through", b"x")))
    assert (await box.run("ls /tmp/through")).rc != 0 and await box.export("b") == {"keep": b"old\n", "more": b"2"}


HOSTILE = {
    "traversal": [_member("ok", b"1"), _member("../evil", b"x")],
    "traversal in the middle": [_member("ok", b"1"), _member("a/../../evil", b"x")],
    "absolute": [_member("ok", b"1"), _member("/etc/evil", b"x")],
    "link out": [_member("ok", b"1"), _member("l", kind=tarfile.SYMTYPE, link="/etc")],
    "link up": [_member("ok", b"1"), _member("a/l", kind=tarfile.SYMTYPE, link="../../x")],
    "link that goes up later": [_member("ok", b"1"), _member("l", kind=tarfile.SYMTYPE, link="a/../..")],
    "link then file": [_member("ok", b"1"), _member("l", kind=tarfile.SYMTYPE, link="d"), _member("l/passwd", b"x")],
    "file then below it": [_member("ok", b"1"), _member("ok/x", b"2")],
    "below it, then a link": [_member("d/x", b"1"), _member("d", kind=tarfile.SYMTYPE, link="e")],
    "hard link out": [_member("ok", b"1"), _member("h", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "hard link to what is not there": [_member("ok", b"1"), _member("h", kind=tarfile.LNKTYPE, link="no")],
    "device": [_member("ok", b"1"), _member("dev", kind=tarfile.BLKTYPE)],
    "pipe": [_member("ok", b"1"), _member("p", kind=tarfile.FIFOTYPE)],
    "twice": [_member("ok", b"1"), _member("./ok", b"2")],
    "too large": [_member("ok", b"1"), _member("huge", size=10 << 30)],
    "copies that are too large together": [_member("ok", bytes(20 << 20))]
    + [_member(f"h{i}", kind=tarfile.LNKTYPE, link="ok") for i in range(4)],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_archive_is_refused_before_anything_is_written(box: Sandbox, members: list[Member]) -> None:
    """Test 45 of docs/sandbox.md."""
    before = await box.list()
    with pytest.raises(UserError):
        await box.put_tar(".", _tar(*members))
    assert await box.list() == before


async def test_a_sparse_file_larger_than_the_disk_is_refused(box: Sandbox) -> None:
    """Test 45 of docs/sandbox.md: ten gigabytes in one block of an archive."""
    info, _ = _member("huge")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"00000000000\x0000000000000\x00"  # one piece, of no bytes
    header[483:495] = b"%011o\x00" % (7 << 30)  # its real size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(UserError):
        await box.put_tar(".", bytes(header) + bytes(1024))
    assert [entry.path for entry in await box.list()] == ["hello.txt"]


async def test_what_is_no_archive_is_a_user_error(box: Sandbox) -> None:
    for archive in (b"x" * 2000, _tar(_member("a", bytes(5000)))[:3000], b"\x1f\x8b\x08" + bytes(600)):
        with pytest.raises(UserError):
            await box.put_tar(".", archive)
    await box.put_tar(".", _tar())
    assert [entry.path for entry in await box.list()] == ["hello.txt"]


async def test_limits_of_get(box: Sandbox) -> None:
    """Test 45 of docs/sandbox.md."""
    await box.run("mkdir d; truncate -s 50M d/sparse; ln -s / root")
    with pytest.raises(OutputLimit):
        await box.get_tar("d", max_bytes=1 << 20)
    for path in ("absent", "root", "root/etc", "/proc"):
        with pytest.raises(UserError):
            await box.get_tar(path)
    with tarfile.open(fileobj=io.BytesIO(await box.get_tar(max_bytes=60 << 20))) as tar:
        assert tar.getmember("root").issym() and not any(name.startswith("root/") for name in tar.getnames())
    assert (await box.run("echo usable")).out == b"usable\n"


async def test_a_racing_swap_puts_and_gets_nothing_behind_a_link(pool: MadePool) -> None:
    """Test 44 of docs/sandbox.md."""
    box = await pool.create(SandboxSpec(files={"d/passwd": b"mine"}))
    await box.run(
        "mkdir /tmp/other; echo 1 > /tmp/other/secret; (setsid sh -c 'while :; do mv d e; ln -s /tmp/other d; rm d; mv e d; done' >/dev/null 2>&1 &)"
    )
    archive = _tar(_member("new", b"1"))
    for _ in range(60):
        try:
            with tarfile.open(fileobj=io.BytesIO(await box.get_tar("d"))) as tar:
                assert "secret" not in tar.getnames()
            await box.put_tar("d", archive)
        except UserError:
            continue
    assert await box.export("/tmp/other") == {"secret": b"1\n"}
    await box.kill()
