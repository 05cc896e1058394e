"""Process 1 is the native runner, and the warm interpreter is a process of its sandbox."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from etude.sandbox.creation import SandboxBase, SandboxCreator
from etude.sandbox.errors import Unsupported
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.native import build
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.wire.live import LiveSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")
Layer = Callable[[str, dict[str, bytes]], str]
COLD = SandboxSpec(warm_python=False, files={"a": b"1"}, env={"NAME": "value"})


def _pid(box: LiveSandbox) -> int:
    with open(f"/proc/self/fdinfo/{box._channel.pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


@pytest.fixture
def native(cells: LocalPool) -> None:
    if cells.probe().runner != "native":
        pytest.skip(f"no native runner: {build.program()}")


async def test_a_cold_sandbox_is_served_by_the_native_runner(maker: SandboxCreator, native: None) -> None:
    box = await maker.make(COLD)
    shown = await box.run("cat a; echo $NAME $HOME; cat /proc/1/comm")
    assert shown.out == b"1value /tmp\nrunner\n"
    with pytest.raises(Unsupported, match="warm"):
        await box.run(["python", "-c", "pass"], warm=True)
    await box.kill()


async def test_a_warm_one_too_and_its_interpreter_is_a_process_that_the_runner_replaces(maker: SandboxCreator) -> None:
    box = await maker.make(SandboxSpec())
    assert (await box.run("cat /proc/1/comm")).out == b"runner\n"
    parent = ["python", "-c", "import os; print(os.getppid())"]
    assert (await box.run(parent, warm=True)).out == b"1\n"
    assert (await box.run("kill -9 -1")).rc == 0
    assert (await box.run(parent, warm=True)).out == b"1\n"
    await box.kill()


async def test_a_stopped_interpreter_goes_on_for_the_next_warm_run(maker: SandboxCreator) -> None:
    box = await maker.make(SandboxSpec())
    await box.run("kill -STOP -1")
    assert (await box.run(["python", "-c", "print(1)"], warm=True, timeout_s=20)).out == b"1\n"
    await box.kill()


async def test_a_warm_run_over_the_size_of_a_socket_buffer_arrives_whole(maker: SandboxCreator) -> None:
    box = await maker.make(SandboxSpec())
    code = f"text = {'x' * 1_000_000!r}; print(len(text))"
    assert (await box.run(["python", "-c", code], warm=True)).out == b"1000000\n"
    await box.kill()


async def test_the_native_runner_holds_its_socket_and_nothing_of_the_zygote(
    maker: SandboxCreator, native: None
) -> None:
    """Test 43 of docs/sandbox.md, seen from outside: no program, no second socket, no folder of the ground."""
    box = await maker.make(COLD)
    folder = f"/proc/{_pid(box)}/fd"
    try:
        held = [os.readlink(f"{folder}/{fd}").split(":")[0] for fd in os.listdir(folder)]
    except PermissionError:
        pytest.skip("it is undumpable: only root may look")
    own = {
        "/dev/null",
        "anon_inode",
        "/proc/1/oom_score_adj",
    }  # the last: how it offers commands to the kernel before itself
    assert held.count("socket") == 1 and set(held) <= {"socket", *own}, held
    await box.kill()


async def test_it_serves_an_image_without_a_single_library(maker: SandboxCreator, native: None, layer: Layer) -> None:
    image = layer("bare", {"data/": b""})
    box = await maker.make(COLD, SandboxBase((image,), "image"))
    await box.write("/data/x", b"2")
    assert (await box.read("a"), await box.read("/data/x")) == (b"1", b"2")
    assert (await box.run(["/bin/sh", "-c", "true"])).rc == 127
    await box.kill()


@pytest.mark.parametrize("backend", ["local", "bubblewrap"])
async def test_where_there_is_none_no_pool_opens_and_the_refusal_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, backend: Literal["local", "bubblewrap"]
) -> None:
    monkeypatch.setattr(build, "program", lambda: "no compiler today")
    if backend == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("there is no bwrap")
    with pytest.raises(Unsupported, match="no compiler today; install a C compiler .* or Etude's wheel for linux_"):
        await open_pool(SandboxSettings(backend=backend))


async def test_the_binary_of_a_wheel_is_taken_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, native: None
) -> None:
    built = build.program()
    assert isinstance(built, Path)
    shutil.copyfile(built, tmp_path / "runner")
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "runner")
    monkeypatch.setattr(build, "COMPILERS", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    taken = build._found_or_made()
    assert taken.read_bytes() == built.read_bytes() and taken.stat().st_mode & 0o777 == build.RUNNER_MODE
    assert build.origin() == "in the wheel"


async def test_without_compiler_and_binary_the_reason_names_what_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "runner")
    monkeypatch.setattr(build, "COMPILERS", ("absent-cc",))
    with pytest.raises(build.Unbuildable, match="no C compiler .looked for absent-cc."):
        build.origin()


async def test_a_closed_pool_holds_no_runner_open(native: None) -> None:
    before = _held_open()
    pool = await LocalPool.open(SandboxSettings(backend="local"), ZygotePool())
    assert _held_open() == before + 1
    await pool.close()
    assert _held_open() == before


def _held_open() -> int:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.exists(link)].count(str(build.program()))
