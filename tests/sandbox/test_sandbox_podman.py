"""Back end `podman`: the command that it runs, and the sandbox where a rootless podman works. Skipped, with the reason, elsewhere."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox import interpreter
from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.launch.launcher import Programs, in_memory
from etude.sandbox.launch.podman import PodmanRuntime
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="podman"))
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def container(engine: SandboxPool) -> AsyncIterator[Sandbox]:
    made = await engine.create(SandboxSpec(files={"hello.txt": b"hello\n"}, disk_mb=2))
    yield made
    await made.kill()


async def test_the_command_closes_what_podman_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    runtime = PodmanRuntime(interpreter.find())
    with ExitStack() as files:
        ends = [in_memory(b"", files) for _ in range(3)]
        programs = Programs(*ends[1:])
        spec = SandboxSpec(workdir="/testbed", disk_mb=3, read_only_binds=(("/usr/share", "/opt/share"),))
        launch = runtime.launch(spec, ends[0], programs, files)
        assert min(launch.descriptors) > 5 and set(launch.descriptors).isdisjoint(ends)
        with pytest.raises(Unsupported, match="separator"):
            runtime.launch(SandboxSpec(read_only_binds=(("/a:b", "/c"),)), ends[0], programs, files)
    words = launch.argv[launch.argv.index("run") + 1 :]
    pairs = list(zip(words, words[1:], strict=False))
    for pair in [("--network", "none"), ("--cap-drop", "all"), ("--security-opt", "no-new-privileges"), ("--pull", "never"),
                 ("--uidmap", "0:0:1"), ("--preserve-fds", "3"), ("--volume", "/usr/share:/opt/share:ro")]:  # fmt: skip
        assert pair in pairs, pair
    assert "--read-only" in words and "--privileged" not in words
    assert [word for word in words if word.startswith("/testbed:")] == [
        "/testbed:rw,nosuid,nodev,exec,size=3m,mode=0755"
    ]
    volumes = [right for left, right in pairs if left == "--volume"]
    assert all(volume.endswith(":ro") for volume in volumes) and not any(
        volume.startswith("/dev/s") for volume in volumes
    )
    base = Path(words[words.index("--rootfs") + 1])
    assert (base / "etc/passwd").is_file() and (base / "testbed").is_dir()
    runtime.close()
    assert not base.exists()


async def test_without_podman_the_refusal_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unsupported, match="install the package podman"):
        await open_pool(SandboxSettings(backend="podman"))


async def test_commands_files_and_limits_work_as_elsewhere(engine: SandboxPool, container: Sandbox) -> None:
    assert (engine.probe().backend, engine.probe().isolation) == ("podman", "namespace")
    result = await container.run("cat hello.txt; echo err >&2; exit 7")
    assert (result.rc, result.out, result.err) == (7, b"hello\n", b"err\n")
    outs = [(await container.run(["python", "-c", "print(2)"], warm=warm)).out for warm in (False, True)]
    assert outs == [b"2\n"] * 2
    await container.write("a/b", b"1")
    assert await container.export() == {"a/b": b"1", "hello.txt": b"hello\n"}
    assert b"No space left" in (await container.run("head -c 9000000 /dev/zero > big")).err
    await container.remove("big")
    assert (await container.run("(setsid sleep 31539001 &) ; sleep 1000", timeout_s=0.5)).timed_out
    assert b"31539001" not in (await container.run("cat /proc/[0-9]*/cmdline")).out


async def test_the_host_is_absent_and_nothing_of_it_can_be_written(container: Sandbox) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "canary").write_text("canary")
        repository = Path(__file__).resolve().parents[2]
        for path in (
            Path(name),
            repository,
            repository / "runs",
            Path.home() / ".config",
            Path("/home"),
            Path("/sys"),
            Path("/tmp"),
        ):
            assert (await container.run(["ls", "-A", str(path)])).out == b"", path
    assert (
        await container.run(
            "find / -xdev -name pip.conf -size +0 2>/dev/null; ls /etc/shadow /etc/pip.conf 2>/dev/null"
        )
    ).out == b""
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/usr/bin/x", "/etc/passwd", "/x"):
        assert (await container.run(f"echo x > {path}")).rc != 0, path
    status = (await container.run("cat /proc/self/status")).out.decode()
    assert (
        "CapEff:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
    )
    with pytest.raises(UserError):
        await container.read("/proc/1/environ")


async def test_forbidden_sockets_and_calls_are_refused(container: Sandbox) -> None:
    code = """
import os, socket
for family, kind, protocol in [(40, 1, 0), (17, 3, 0), (38, 5, 0), (16, 3, 9)]:
    try:
        socket.socket(family, kind, protocol).close()
        print("created", family)
    except OSError as error:
        print(error.errno, end=" ")
try:
    os.memfd_create("x")
except PermissionError:
    print("refused")
"""
    assert (await container.run(["python", "-c", code], warm=True)).out.split()[-1:] == [b"refused"]
    assert b"created" not in (await container.run(["python", "-c", code])).out
    interfaces = (await container.run("tail -n +3 /proc/net/dev")).out.decode().splitlines()
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]


async def test_a_closed_pool_leaves_no_process_and_no_folder() -> None:
    try:
        pool = await open_pool(SandboxSettings(backend="podman"))
    except Unsupported as error:
        pytest.skip(str(error))
    box = await pool.create(SandboxSpec())
    await box.run("setsid sleep 31539002 >/dev/null 2>&1 &")
    folder: Path = pool._backend._runtime._folder  # type: ignore[attr-defined]
    assert folder.is_dir()
    await pool.close()
    assert not folder.exists()
    left = await asyncio.to_thread(_commands)
    assert not any("31539002" in line or str(folder) in line for line in left)


def _commands() -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{name}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # gone
    return found
