"""The fake back end keeps the interface's promises, so that what is tested over it is tested."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.sandbox.errors import DiskFull, LayerCorrupt, OutputLimit, SandboxNotFound, Unsupported, UserError
from etude.sandbox.fake.clock import run
from etude.sandbox.fake.files import FakeFiles
from etude.sandbox.fake.layer import FakeLayer
from etude.sandbox.fake.pool import FakePool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, SandboxSpec

NAMES = st.sampled_from(["a", "b", "d/a", "d/e/b"])
STEPS = st.lists(st.one_of(st.tuples(NAMES, st.binary(max_size=3)), st.tuples(NAMES, st.none()), st.just(("", None))))


async def test_commands_streams_and_exit_statuses_are_apart() -> None:
    """Tests 1 and 2 of docs/sandbox.md."""
    box = await FakePool().create(SandboxSpec(files={"x": b"\xff\x00"}))
    done = await box.run("echo hi; cat x no-such; false")
    assert (done.rc, done.out, b"no-such" in done.err) == (1, b"hi\n\xff\x00", True)
    assert (await box.run(["no-such-command"])).rc == 127
    assert (await box.run("false && echo no || echo yes")).out == b"yes\n"
    assert (await box.run("echo one > n; echo two >> n; cat n")).out == b"one\ntwo\n"
    assert (await box.run("echo a | cat")).rc == 2  # refused by name, not misread


def test_a_time_out_ends_the_command_and_the_sandbox_goes_on() -> None:
    """Test 3 of docs/sandbox.md."""

    async def story() -> None:
        box = await FakePool().create(SandboxSpec())
        done = await box.run("sleep 1000", timeout_s=5)
        assert done.timed_out and done.rc == 137 and done.duration_s == 5
        assert (await box.run("true")).rc == 0

    run(story())


async def test_a_process_takes_input_as_it_comes_and_a_signal() -> None:
    box = await FakePool().create(SandboxSpec())
    process = await box.exec(["cat"], stdin=None)
    await process.write(b"first ")
    await process.write(b"second")
    await process.close_stdin()
    assert b"".join([chunk.data async for chunk in process.stream()]) == b"first second"
    assert (await process.wait()).rc == 0
    with pytest.raises(UserError):
        await process.write(b"late")
    sleeping = await box.exec("sleep 1000")
    await asyncio.sleep(0)
    await sleeping.signal(15)
    assert (await sleeping.wait()).signal == 15


async def test_kill_ends_what_waits_with_a_typed_error() -> None:
    """Tests 13 and 16 of docs/sandbox.md."""
    box = await FakePool().create(SandboxSpec())
    waiting = [asyncio.ensure_future(box.run("sleep 1000", timeout_s=2000)) for _ in range(3)]
    process = await box.exec(["cat"], stdin=None)
    await asyncio.sleep(0.01)
    await asyncio.gather(box.kill(), box.kill())
    for one in [*waiting, asyncio.ensure_future(process.wait())]:
        with pytest.raises(SandboxNotFound):
            await one
    assert box.state == "dead"


async def test_output_and_disk_are_bounded() -> None:
    box = await FakePool().create(SandboxSpec(disk_mb=1, files={"big": b"x" * 1000}))
    done = await box.run("cat big", max_output_bytes=100)
    assert done.truncated and len(done.out) <= 100 and b"left out" in done.out
    with pytest.raises(DiskFull):
        await box.write("more", bytes(1 << 20))
    with pytest.raises(OutputLimit):
        await box.read("big", max_bytes=10)
    with pytest.raises(UserError):
        await box.read("/proc/1/environ")


async def test_forks_do_not_see_each_other() -> None:
    """Test 18 of docs/sandbox.md."""
    box = await FakePool().create(SandboxSpec(files={"keep": b"1", "gone": b"1"}))
    await box.remove("gone")
    one, two = await box.fork(2)
    await one.write("keep", b"2")
    await two.remove("keep")
    assert [await other.export() for other in (box, one, two)] == [{"keep": b"1"}, {"keep": b"2"}, {}]
    ref = await box.snapshot()
    await box.write("new", b"")
    assert [(change.path, change.kind) for change in await box.diff(ref)] == [("work/new", "added")]


async def test_a_patch_is_what_git_applies(tmp_path: Path) -> None:
    box = await FakePool().create(SandboxSpec(files={"a.txt": b"1\n2\n3", "gone": b"x\n", "mode": b"m\n"}))
    base = await box.snapshot()
    before = await box.export()
    await box.write("a.txt", b"1\n2!\n3\n")
    await box.remove("gone")
    await box.write("d/new", b"n\n")
    await box.write("mode", b"m\n", mode=0o755)
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    patch = await box.git_patch(base)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=patch, check=True)
    found = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == await box.export()


async def test_archives_come_back_and_hostile_ones_write_nothing() -> None:
    """Test 45 of docs/sandbox.md."""
    pool = FakePool()
    box, other = await pool.create(SandboxSpec(files={"d/x": b"1"})), await pool.create(SandboxSpec())
    await other.put_tar(".", await box.get_tar())
    assert await other.export() == {"d/x": b"1"}
    for name in ("../out", "/etc/passwd"):
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("first"))
            archive.addfile(tarfile.TarInfo(name))
        with pytest.raises(UserError):
            await box.put_tar(".", held.getvalue())
    assert await box.export() == {"d/x": b"1"}


async def test_demands_it_cannot_meet_are_refused() -> None:
    """Test 28 of docs/sandbox.md."""
    pool = await open_pool(SandboxSettings(backend="fake"))
    for spec in (
        SandboxSpec(isolation_min="namespace"),
        SandboxSpec(folder="/home/x"),
        SandboxSpec(uid_mode="range"),
        SandboxSpec(network=Network("host")),
    ):
        with pytest.raises(Unsupported, match="fake"):
            await pool.create(spec)
    with pytest.raises(UserError, match="no-such"):
        await pool.create(SandboxSpec(image="no-such"))
    await pool.close()


@settings(max_examples=60)
@given(STEPS)
def test_layers_with_whiteouts_travel_unchanged(steps: list[tuple[str, bytes | None]]) -> None:
    """Against a plain dictionary: writes, removals and snapshots in any order, then every layer by way of its archive."""
    model: dict[str, bytes] = {}
    files = FakeFiles("/", 1 << 20)
    for name, data in steps:
        if not name:
            files.freeze()
        elif data is None and name in model:
            files.remove(name)
            del model[name]
        elif data is not None:
            files.write(name, data, None)
            model[name] = data
    layers = files.freeze()
    moved = tuple(FakeLayer.load(layer.digest, layer.export()) for layer in layers)
    there = FakeFiles("/", 1 << 20, moved)
    assert {name: there.read(name, 100, 0) for name in there.names()} == model


def test_a_changed_archive_is_refused() -> None:
    """Test 21 of docs/sandbox.md."""
    files = FakeFiles("/", 100)
    files.write("a", b"right", None)
    (layer,) = files.freeze()
    with pytest.raises(LayerCorrupt):
        FakeLayer.load(layer.digest, layer.export().replace(b"right", b"wrong"))
    with pytest.raises(LayerCorrupt):
        FakeLayer.load(layer.digest, b"no archive at all" * 100)
