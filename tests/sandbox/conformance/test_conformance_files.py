"""Files in and out through the runner: whole, bounded, and never through a link."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from makers import MadePool

from etude.sandbox.errors import OutputLimit, Unsupported, UserError
from etude.sandbox.inside import files
from etude.sandbox.inside.ground import SandboxPaths
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import WORKDIR, FileEntry, Network, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_what_is_written_is_read_listed_and_exported(box: Sandbox) -> None:
    data = bytes(range(256)) * 100
    await box.write("a/b/c.bin", data, mode=0o600)
    await box.write("/tmp/other", b"2")
    assert (
        await box.read("a/b/c.bin") == data and await box.read(f"{WORKDIR}/a/b/c.bin", offset=25_000) == data[25_000:]
    )
    assert await box.read("a/b/c.bin", max_bytes=3, offset=1) == data[1:4]
    assert await box.list() == [
        FileEntry("a", "dir", 60, 0o755),
        FileEntry("a/b", "dir", 60, 0o755),
        FileEntry("a/b/c.bin", "file", len(data), 0o600),
        FileEntry("hello.txt", "file", 6, 0o644),
    ]
    assert [entry.path for entry in await box.list(recursive=False)] == ["a", "hello.txt"]
    assert await box.export() == {"a/b/c.bin": data, "hello.txt": b"hello\n"}
    assert await box.export("a") == {"b/c.bin": data}
    assert await box.export("/tmp") == {"other": b"2"}
    await box.remove("a")
    assert await box.export() == {"hello.txt": b"hello\n"}


async def test_large_files_pass(box: Sandbox) -> None:
    data = b"0123456789abcdef" * 900_000
    await box.write("large", data)
    assert await box.read("large", max_bytes=len(data)) == data
    assert (await box.export())["large"] == data


async def test_limits_of_read_list_and_export(box: Sandbox) -> None:
    """Test 46 of docs/sandbox.md."""
    await box.run("mkdir many; cd many; for i in $(seq 30); do echo $i > $i; done; truncate -s 60M sparse")
    assert len(await box.read("many/sparse", max_bytes=1000)) == 1000
    await box.run("truncate -s 100G huge 2>/dev/null || truncate -s 60M huge")
    assert await box.read("huge", max_bytes=10) == b"\0" * 10
    with pytest.raises(OutputLimit):
        await box.list("many", max_entries=10)
    with pytest.raises(OutputLimit):
        await box.export("many", max_bytes=1 << 20)
    with pytest.raises(UserError):
        await box.write("huge", b"x" * (65 << 20))


@pytest.mark.parametrize(
    "path",
    ["absent", "absent/x", "/proc/1/environ", "/proc/self/mem", "/dev/zero", "../proc/version", "a\0b", ".", "/"],
)
async def test_paths_that_cannot_be_read_are_user_errors(box: Sandbox, path: str) -> None:
    with pytest.raises(UserError):
        await box.read(path)


async def test_dots_stay_inside(box: Sandbox) -> None:
    assert await box.read(f"../../../..{WORKDIR}/hello.txt") == b"hello\n"
    with pytest.raises(UserError):
        await box.write("../usr/bin/evil", b"")


async def test_links_pipes_and_devices_are_refused_without_hanging(box: Sandbox) -> None:
    """Tests 44 and 47 of docs/sandbox.md."""
    await box.run(
        "ln -s hello.txt link; ln -s / root; mkfifo pipe; ln -s /proc/self/mem mem; ln -s /dev/zero zero; mkdir d; mkfifo d/pipe"
    )
    for path in ("link", "pipe", "mem", "zero", "root/etc/passwd", "root/proc/1/environ"):
        with pytest.raises(UserError):
            await box.read(path)
        with pytest.raises(UserError):
            await box.write(path, b"x")
    for path in ("root", "root/work", "link"):
        with pytest.raises(UserError):
            await box.export(path)
        with pytest.raises(UserError):
            await box.list(path)
    assert await box.export() == {"hello.txt": b"hello\n"}
    kinds = {entry.path: entry.kind for entry in await box.list()}
    assert (kinds["link"], kinds["root"], kinds["pipe"], kinds["d"]) == ("link", "link", "other", "dir")
    await box.remove("root")  # the link, not what it shows
    assert (await box.run("[ -x /usr/bin/env ] && echo whole")).out == b"whole\n"


async def test_what_is_closed_to_its_own_owner_is_left_out_of_an_export(box: Sandbox) -> None:
    await box.run("echo 1 > shut; mkdir -p d/dark; echo 2 > d/dark/x; echo 3 > d/y; chmod 0 shut d/dark")
    assert await box.export() == {"hello.txt": b"hello\n", "d/y": b"3\n"}
    kinds = {entry.path: entry.kind for entry in await box.list()}
    assert (kinds["shut"], kinds["d/dark"]) == ("file", "dir")  # listed all the same


@pytest.mark.parametrize("gone", ["b", "d"])
async def test_what_vanishes_after_it_was_listed_is_left_out_of_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    (tmp_path / "d").mkdir()
    for name in ("a", "b", "d/x", "e"):
        (tmp_path / name).write_bytes(name.encode())
    look = files._lstat

    def look_and_remove(name: str, folder: int) -> os.stat_result | None:
        status = look(name, folder)
        if name == gone:
            shutil.rmtree(tmp_path / name) if name == "d" else (tmp_path / name).unlink()
        return status

    monkeypatch.setattr(files, "_lstat", look_and_remove)
    inside = files.FileOperations(SandboxPaths({"workdir": WORKDIR}, {WORKDIR: str(tmp_path)}))
    left = {"b": ["a", "d/x", "e"], "d": ["a", "b", "e"]}[gone]
    assert inside.export(".", 100) == [(name, name.encode()) for name in left]


async def test_removing_a_tree_with_links_touches_nothing_else(box: Sandbox) -> None:
    await box.run(
        f"mkdir -p keep tree/deep; echo 1 > keep/x; ln -s ../keep tree/keep; ln -s {WORKDIR}/keep tree/deep/keep; ln keep/x tree/hard"
    )
    await box.remove("tree")
    assert await box.export("keep") == {"x": b"1\n"}
    with pytest.raises(UserError):
        await box.remove("tree")


async def test_a_racing_swap_never_shows_what_lies_behind_a_link(pool: MadePool) -> None:
    """Test 44 of docs/sandbox.md."""
    box = await pool.create(SandboxSpec(files={"d/passwd": b"mine"}))
    swap = "while :; do mv d e; ln -s /etc d; rm d; mv e d; done"
    await box.run(f"(setsid sh -c '{swap}' >/dev/null 2>&1 &)")
    seen: set[bytes] = set()
    for _ in range(300):
        try:
            seen.add(await box.read("d/passwd"))
            seen.update((await box.export("d")).values())
        except UserError:
            continue
    assert seen <= {b"mine"}
    await box.kill()


@pytest.fixture
def package() -> Iterator[Path]:
    """A folder that everybody may reach, as a package must be for a sandbox made by root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "tool.py").write_text("VALUE = 7\n")
        yield folder


async def test_extra_folders_are_bound_read_only(pool: MadePool, package: Path) -> None:
    folder = package
    box = await pool.create(SandboxSpec(workdir="/testbed", read_only_binds=((str(folder), "/opt/tools/tool"),)))
    ran = await box.run(
        ["python", "-c", "import tool; print(tool.VALUE)"], env={"PYTHONPATH": "/opt/tools/tool"}, warm=pool.is_warm
    )
    assert ran.out == b"7\n" and (await box.run("pwd")).out == b"/testbed\n"
    assert (await box.run("echo x > /opt/tools/tool/new")).rc != 0 and not (folder / "new").exists()
    await box.kill()


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(isolation_min="vm"),
        SandboxSpec(workdir="/usr/lib"),
        SandboxSpec(workdir="relative"),
        SandboxSpec(workdir=f"{WORKDIR}/../etc"),
        SandboxSpec(network=Network("host")),
    ],
)
async def test_demands_that_cannot_be_met_are_refused_not_downgraded(pool: MadePool, spec: SandboxSpec) -> None:
    with pytest.raises(Unsupported):
        await pool.create(spec)
    with pytest.raises(UserError):
        await pool.create(SandboxSpec(read_only_binds=(("/no/such/folder", "/opt/x"),)))


async def test_stat_tells_what_list_tells_and_follows_no_link(box: Sandbox) -> None:
    await box.run("mkdir -m 750 d; ln -s hello.txt link; mkfifo pipe")
    assert await box.stat("hello.txt") == FileEntry("hello.txt", "file", 6, 0o644)
    kinds = {path: (await box.stat(path)).kind for path in ("d", "link", "pipe", WORKDIR, "/")}
    assert kinds == {"d": "dir", "link": "link", "pipe": "other", WORKDIR: "dir", "/": "dir"}
    assert (await box.stat("d")).mode == 0o750
    for path in ("absent", "/proc/1", "link/x"):
        with pytest.raises(UserError):
            await box.stat(path)
