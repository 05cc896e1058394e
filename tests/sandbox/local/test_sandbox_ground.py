"""Where a sandbox' files lie: one bounded file system, layers below it, and a descriptor of what was written for the client."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.creation import SandboxBase, SandboxCreator
from etude.sandbox.errors import InfraError, Unsupported, UserError
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import WORKDIR, Network, SandboxSpec
from etude.sandbox.wire.live import LiveSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

Layer = Callable[[str, dict[str, bytes]], str]


@pytest_asyncio.fixture(loop_scope="module")
async def box(maker: SandboxCreator) -> AsyncIterator[LiveSandbox]:
    made = await maker.make(SandboxSpec(disk_mb=4))
    yield made
    await made.kill()


def _upper(box: LiveSandbox) -> int:
    return box._channel.granted["upper"]


async def test_disk_mb_bounds_all_that_is_written_together(box: LiveSandbox) -> None:
    """Test 40 of docs/sandbox.md: bytes."""
    shown = await box.run(
        "head -c 3000000 /dev/zero > a; head -c 3000000 /dev/zero > /tmp/b; cat a /tmp/b | wc -c; rm a; echo more > /tmp/c && echo ok"
    )
    held, ok = shown.out.split()
    assert (4 << 20) - 8192 < int(held) <= 4 << 20 and ok == b"ok" and b"No space left" in shown.err


async def test_inodes_are_bounded_with_the_bytes(box: LiveSandbox) -> None:
    """Test 40 of docs/sandbox.md: inodes."""
    shown = await box.run("i=0; while true > f$i; do i=$((i+1)); done 2>/dev/null; ls | wc -l")
    assert 900 < int(shown.out) <= 4 * 256


async def test_the_client_holds_what_was_written_and_nothing_else(box: LiveSandbox) -> None:
    await box.run("echo 1 > a; mkdir d; echo 2 > d/b; echo 3 > /tmp/c")
    found = {os.path.join(path, name) for path, _, names, _ in os.fwalk(dir_fd=_upper(box)) for name in names}
    assert found == {f".{WORKDIR}/a", f".{WORKDIR}/d/b", "./tmp/c"}


async def test_over_layers_the_upper_holds_the_changes_alone(maker: SandboxCreator, layer: Layer) -> None:
    """Test 18 of docs/sandbox.md: whiteouts and opaque folders are in what a snapshot copies."""
    low = layer("low", {"work/kept": b"low", "work/gone": b"x", "work/same": b"low", "work/dir/old": b"x"})
    high = layer("high", {"work/same": b"high"})
    box = await maker.make(SandboxSpec(), SandboxBase((high, low)))
    assert os.listdir(_upper(box)) == ["tmp"]  # the layers have no /tmp; nothing was copied
    shown = await box.run(
        "cat kept same; echo; rm gone; rm -r dir; mkdir dir; echo new > dir/new; echo x > /tmp/t; ls; ls dir"
    )
    assert shown.out.decode().split() == ["lowhigh", "dir", "kept", "same", "new"]
    entries = {
        os.path.join(path, name): os.stat(name, dir_fd=fd, follow_symlinks=False)
        for path, folders, names, fd in os.fwalk(dir_fd=_upper(box))
        for name in (*folders, *names)
    }
    assert set(entries) == {"./work", f".{WORKDIR}/gone", f".{WORKDIR}/dir", f".{WORKDIR}/dir/new", "./tmp", "./tmp/t"}
    assert stat.S_ISCHR(entries[f".{WORKDIR}/gone"].st_mode) and entries[f".{WORKDIR}/gone"].st_rdev == 0
    folder = os.open("work/dir", os.O_RDONLY, dir_fd=_upper(box))
    assert os.getxattr(folder, "user.overlay.opaque") == b"y"
    os.close(folder)
    await box.kill()


async def test_a_layer_serves_many_and_is_never_written(maker: SandboxCreator, layer: Layer) -> None:
    """Test 18 of docs/sandbox.md: edits of one sandbox are invisible to the layer and to its siblings."""
    shared = layer("shared", {"work/file": b"before"})
    one, two = [await maker.make(SandboxSpec(), SandboxBase((shared,))) for _ in range(2)]
    await one.run("echo after > file; chmod 600 file; mv file other")
    assert (await two.read("file")) == b"before"
    with open(f"{shared}{WORKDIR}/file", "rb") as file:
        assert file.read() == b"before"
    await one.kill()
    await two.kill()


async def test_sixty_layers_are_one_tree(maker: SandboxCreator, layer: Layer) -> None:
    """Test 19 of docs/sandbox.md: the depth a chain may have."""
    chain = [layer(f"{number:064x}", {f"work/f{number}": b"", "work/top": b"%d" % number}) for number in range(60)]
    box = await maker.make(SandboxSpec(), SandboxBase(tuple(reversed(chain))))
    assert (await box.read("top")) == b"59" and len(await box.list()) == 61
    await box.kill()


async def test_more_layers_than_one_mount_takes_are_refused_and_leave_nothing(
    maker: SandboxCreator, layer: Layer
) -> None:
    chain = tuple(layer(f"f{number:063x}", {}) for number in range(70))
    with pytest.raises(InfraError, match="70 layers.*flatten"):
        await maker.make(SandboxSpec(), SandboxBase(chain))


async def test_a_root_that_cannot_be_made_is_our_fault_and_typed(maker: SandboxCreator, store: Path) -> None:
    """A missing layer is no evidence against anybody: never a UserError."""
    with pytest.raises(InfraError, match="its root could not be made.*mount"):
        await maker.make(SandboxSpec(), SandboxBase((str(store / "missing"),)))


async def test_no_path_inside_leads_to_layers_ground_or_zygote(maker: SandboxCreator, layer: Layer) -> None:
    """Test 42 of docs/sandbox.md: the store's place on the host is not in the list of mounts either."""
    hidden = layer("hidden", {"work/seen": b"", "secret": b"canary"})
    box = await maker.make(SandboxSpec(), SandboxBase((hidden,)))
    shown = await box.run("ls -A /; cat /proc/self/mountinfo /proc/1/mountinfo; find / -xdev -name secret 2>/dev/null")
    for word in (os.path.dirname(hidden).encode(), b"secret", b".layers", b"/.cell/"):
        assert word not in shown.out
    assert (await box.run("ls /.ground /.cell /.layers")).out == b""
    await box.kill()


async def test_an_image_is_the_root_with_our_devices_and_processes(maker: SandboxCreator, layer: Layer) -> None:
    names = ("sh", "ls", "cat", "id")
    programs = {f"bin/{name}": _contents(f"/bin/{name}") for name in names}
    image = layer("image", {**programs, **_libraries(names), "etc/os-release": b"ID=mine\n", "data/": b""})
    box = await maker.make(SandboxSpec(warm_python=False, workdir="/data/in"), SandboxBase((image,), "image"))
    shown = await box.run(
        ["/bin/sh", "-c", "pwd; cat /etc/os-release /etc/hosts; ls /; cat /proc/1/status > /tmp/s; ls /home /opt"]
    )
    words = shown.out.decode().split()
    assert words[:2] == ["/data/in", "ID=mine"] and "localhost" in words and not {"home", "opt"} & set(words), shown
    assert {"bin", "data", "dev", "etc", "proc", "tmp"} <= set(words)
    assert (
        await box.run(["/bin/sh", "-c", "echo x > /bin/new && cat /bin/new; echo x > /dev/null; echo x > /dev/new"])
    ).out == b"x\n"
    assert not os.path.exists(f"{image}/bin/new")
    await box.kill()


async def test_a_link_in_an_image_leads_no_mount_astray(maker: SandboxCreator, layer: Layer) -> None:
    image = layer("astray", {"bin/": b""})
    os.symlink("/.layers", f"{image}/tmp")
    with pytest.raises(UserError, match="/tmp must be a folder"):
        await maker.make(SandboxSpec(warm_python=False), SandboxBase((image,), "image"))


async def test_a_back_end_without_a_store_refuses_layers(layer: Layer) -> None:
    pool = await LocalPool.open(SandboxSettings(backend="local"), ZygotePool())
    with pytest.raises(Unsupported, match="layers"):
        await pool._creator.make(SandboxSpec(), SandboxBase(("/x",)))
    await pool.close()


async def test_terminals_are_the_sandbox_own(box: LiveSandbox) -> None:
    code = "import os, pty; a, b = pty.openpty(); print(os.ttyname(b)); os.write(b, b'x'); print(os.read(a, 1), os.listdir('/dev/pts'))"
    shown = await box.run(["python", "-c", code])
    assert shown.out.decode().splitlines() == ["/dev/pts/0", "b'x' ['0', 'ptmx']"], shown.err


async def test_the_door_of_a_policed_sandbox_is_answered_outside(maker: SandboxCreator) -> None:
    """The listener is inside, the acceptor is not, and there is no other way out."""
    box = await maker.make(SandboxSpec(network=Network("allowlist")))
    code = (
        "import socket; s = socket.create_connection(('127.0.0.1', 3128)); "
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(s.recv(12).decode())"
    )
    assert (await box.run(["python", "-c", code])).out == b"HTTP/1.1 404\n"
    assert [
        line.split(":")[0].strip() for line in (await box.run("tail -n +3 /proc/net/dev")).out.decode().splitlines()
    ] == ["lo"]
    await box.kill()


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _libraries(names: tuple[str, ...]) -> dict[str, bytes]:
    """What these programs are linked with, under the paths at which they look."""
    found: dict[str, bytes] = {}
    for name in names:
        listed = subprocess.run(["ldd", f"/bin/{name}"], capture_output=True, text=True, check=True).stdout
        for word in listed.split():
            if word.startswith("/"):
                found[word[1:]] = _contents(word)
    return found
