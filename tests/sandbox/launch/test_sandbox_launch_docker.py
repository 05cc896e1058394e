"""Back end `docker`, on whatever answers docker's command line: podman replaces it here, as root. Skipped elsewhere, with the reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox import interpreter
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.launch import handing
from etude.sandbox.launch.docker import DockerRuntime
from etude.sandbox.launch.launcher import Launcher
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

_SOCKETS = """
import socket
for family in (40, 17, 38):
    try:
        socket.socket(family, 1, 0)
    except OSError:
        print("refused")
"""
_SETTINGS = SandboxSettings(backend="docker")


@pytest.fixture(scope="module")
def words() -> Iterator[tuple[str, ...]]:
    if shutil.which("podman") is None or os.geteuid() != 0:
        pytest.skip("podman, which replaces docker, is not here or can't be asked for a user of the host: not root")
    folder = tempfile.mkdtemp(prefix="etude-test-docker-")
    places = [word for name in ("root", "runroot", "tmpdir") for word in (f"--{name}", f"{folder}/{name}")]
    runc = shutil.which("runc")
    yield ("podman", *places, "--cgroup-manager", "cgroupfs", *(["--runtime", runc] if runc else []))
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(words: tuple[str, ...]) -> AsyncIterator[SandboxPool]:
    try:
        made = await _opened(words)
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def container(engine: SandboxPool) -> AsyncIterator[Sandbox]:
    made = await engine.create(SandboxSpec(files={"hello.txt": b"hello\n"}, disk_mb=2, network=Network("allowlist")))
    yield made
    await made.kill()


async def _opened(words: tuple[str, ...]) -> LocalPool:
    python = interpreter.find()
    return await LocalPool.open(_SETTINGS, Launcher(DockerRuntime(python, words), python))


def _ask(words: tuple[str, ...], *more: str) -> str:
    return subprocess.run([*words, *more], capture_output=True, check=True).stdout.decode()


async def test_without_an_engine_the_refusal_says_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="there is no docker; install docker"):
        await open_pool(_SETTINGS)
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(Unsupported, match="no engine answers: Cannot connect to the Docker daemon; start it"):
        await open_pool(_SETTINGS)


async def test_commands_files_and_limits_work_as_elsewhere(engine: SandboxPool, container: Sandbox) -> None:
    """Tests 1, 3 and 40 of docs/sandbox.md."""
    assert (engine.probe().backend, engine.probe().isolation) == ("docker", "namespace")
    result = await container.run("cat hello.txt; echo err >&2; exit 7")
    assert (result.rc, result.out, result.err) == (7, b"hello\n", b"err\n")
    outs = [(await container.run(["python", "-c", "print(2)"], warm=warm)).out for warm in (False, True)]
    assert outs == [b"2\n"] * 2
    await container.write("a/b", b"1")
    assert await container.export() == {"a/b": b"1", "hello.txt": b"hello\n"}
    assert b"No space left" in (await container.run("head -c 9000000 /dev/zero > big")).err
    await container.remove("big")
    assert (await container.run("(setsid sleep 1000 &) ; sleep 1000", timeout_s=0.5)).timed_out
    process = await container.exec(["cat"], stdin=None)
    await process.write(b"through")
    await process.close_stdin()
    assert (await process.wait()).out == b"through"


async def test_what_is_inside_is_no_one_and_sees_nothing_of_the_host(container: Sandbox) -> None:
    """Tests 32, 42 and 43 of docs/sandbox.md."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "canary").write_text("canary")
        for path in (
            Path(name),
            Path(__file__).resolve().parents[3],
            Path.home() / ".config",
            Path("/home"),
            Path("/tmp"),
        ):
            assert (await container.run(["ls", "-A", str(path)])).out == b"", path
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/usr/bin/x",
        "/etc/passwd",
        "/x",
        "/opt/etude/door/x",
    ):
        assert (await container.run(f"echo x > {path}")).rc != 0, path
    status = (await container.run("cat /proc/self/status")).out.decode()
    assert "CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    assert int(status.partition("\nUid:\t")[2].split()[0]) > 1 << 30
    assert (await container.run("ls -A /opt/etude/door; ls /proc/self/fd")).out.split() == [b"0", b"1", b"2", b"3"]
    assert (await container.run(["python", "-c", _SOCKETS], warm=True)).out == b"refused\n" * 3


async def test_a_policed_door_is_on_its_loopback(container: Sandbox) -> None:
    code = (
        "import socket\ns = socket.create_connection(('127.0.0.1', 3128))\n"
        "s.sendall(b'CONNECT example.org:443 HTTP/1.1\\r\\nHost: example.org:443\\r\\n\\r\\n')\nprint(s.recv(100).split()[1].decode())"
    )
    assert (await container.run(["python", "-c", code])).out == b"403\n"
    assert [one.host for one in container.decisions] == ["example.org"]


async def test_each_container_is_a_user_of_its_own_and_ends_with_its_sandbox(
    engine: SandboxPool, words: tuple[str, ...]
) -> None:
    one, two = await engine.create(SandboxSpec()), await engine.create(SandboxSpec())
    assert (await one.run("id -u")).out != (await two.run("id -u")).out
    before = _ask(words, "ps", "--quiet").split()
    await one.kill()
    await two.kill()
    assert len(_ask(words, "ps", "--all", "--quiet").split()) == len(before) - 2


async def test_a_closed_pool_leaves_no_container_no_image_and_no_folder(
    engine: SandboxPool, words: tuple[str, ...]
) -> None:
    before = sorted(_ask(words, "images", "--quiet").split())
    made = await _opened(words)
    await made.create(SandboxSpec(workdir="/testbed"))
    docker: DockerRuntime = made._backend._runtime  # type: ignore[attr-defined]
    assert docker._folder.is_dir() and len(_ask(words, "images", "--quiet").split()) == len(before) + 2
    await made.close()
    assert not docker._folder.exists() and sorted(_ask(words, "images", "--quiet").split()) == before
    assert _ask(words, "ps", "--all", "--quiet", "--filter", f"label=etude.pool={docker._folder.name}") == ""


async def test_what_a_dead_owner_left_is_removed_by_its_ledger_twice_if_need_be(
    engine: SandboxPool, words: tuple[str, ...]
) -> None:
    """Test 12 of docs/sandbox.md."""
    made = await _opened(words)
    box = await made.create(SandboxSpec())
    docker: DockerRuntime = made._backend._runtime  # type: ignore[attr-defined]
    for _ in range(2):
        for undo in docker.leftovers():
            undo.undo()
    assert not docker._folder.exists()
    assert _ask(words, "ps", "--all", "--quiet", "--filter", f"label=etude.pool={docker._folder.name}") == ""
    with pytest.raises(InfraError):
        await box.run("echo 1")
    await made.close()


async def test_an_engine_whose_container_never_comes_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "docker"
    silent.write_text('#!/bin/sh\n[ "$1" != run ] || exec sleep 60\n[ "$1" != import ] || exec cat >/dev/null\n')
    silent.chmod(0o755)
    monkeypatch.setattr(handing, "_PATIENCE_S", 0.5)
    with pytest.raises(Unsupported, match="no process connected to the control socket"):
        await _opened((str(silent),))


@pytest.mark.parametrize("tail", ["_9yd2yr_", "________", "-a_-_b--"])
async def test_an_image_has_a_name_that_engines_take_whatever_the_folder_is_called(
    tail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = tmp_path / "docker"
    taking.write_text("#!/bin/sh\nexec cat >/dev/null\n")
    taking.chmod(0o755)
    folder = tmp_path / f"etude-docker-{tail}"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(folder))
    image = DockerRuntime(interpreter.find(), (str(taking),))._image("/w", -1)
    assert re.fullmatch(
        r"localhost/[a-z0-9]+(?:-[a-z0-9]+)*:\d+", image
    )  # the OCI distribution's grammar, without what we never use


async def test_an_engine_that_fails_is_quoted(tmp_path: Path) -> None:
    failing = tmp_path / "docker"
    failing.write_text(
        '#!/bin/sh\n[ "$1" != import ] || exec cat >/dev/null\n[ "$1" != run ] || { echo no seat free >&2; exit 125; }\n'
    )
    failing.chmod(0o755)
    with pytest.raises(Unsupported, match="no seat free"):
        await _opened((str(failing),))
