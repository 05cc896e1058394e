"""A sandbox around a folder of the host: what can be written, what can't, what has no path at all."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.inside.cell import DOOR
from etude.sandbox.pool import open_around, open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, SandboxSpec
from etude.sandbox.spec_validation import FOLDER_BACKENDS


def spec(folder: Path, **more: object) -> SandboxSpec:
    given = {"workdir": str(folder), "folder": str(folder), "memory_mb": 2048, "pids": 256, "disk_mb": 64, **more}
    return SandboxSpec(**given)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "project"
    (place / ".git" / "hooks").mkdir(parents=True)
    (place / "a.txt").write_text("before\n")
    (place.parent / "outside.txt").write_text("outside")
    return place


@pytest_asyncio.fixture(params=FOLDER_BACKENDS)
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend=request.param))
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


@pytest_asyncio.fixture
async def box(pool: SandboxPool, folder: Path) -> AsyncIterator[Sandbox]:
    made = await pool.create(spec(folder))
    yield made
    await made.kill()


async def test_files_and_commands_work_in_the_persons_own_folder(box: Sandbox, folder: Path) -> None:
    await box.write("new/b.txt", b"b")
    done = await box.run("pwd; cat new/b.txt; echo after > a.txt; mkdir -p deep/er && touch deep/er/c")
    assert done.rc == 0 and done.out.decode() == f"{folder}\nb"
    assert (folder / "a.txt").read_text() == "after\n" and (folder / "deep/er/c").exists()
    status = (folder / "new/b.txt").stat()
    assert (status.st_uid, status.st_gid) == (folder.stat().st_uid, folder.stat().st_gid)


@pytest.mark.parametrize(
    "place", ["/usr/x", "/etc/x", "/x", "~/x", "../outside.txt", ".git/hooks/post-commit", ".git/config"]
)
async def test_nothing_else_can_be_written(place: str, box: Sandbox, folder: Path) -> None:
    home = Path.home() if Path.home().is_dir() else Path("/home")  # an account may have none
    done = await box.run(f"echo x > {place}", env={"HOME": str(home)})
    if place == "../outside.txt":  # /tmp inside is another one
        assert (folder.parent / "outside.txt").read_text() == "outside"
    else:
        assert done.rc != 0 and b"Read-only file system" in done.err, done


async def test_the_rest_of_the_machine_can_be_read_but_not_its_secrets(
    pool: SandboxPool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path.resolve() / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("key")
    (home / ".netrc").write_text("password")
    (home / "hidden").mkdir()
    (home / "hidden" / "session").write_text("said")
    monkeypatch.setenv("HOME", str(home))
    box = await pool.create(spec(folder, hidden=(str(home / "hidden"),)))
    try:
        done = await box.run(f"cat {home}/.ssh/id; cat {home}/.netrc; cat {home}/hidden/session; ls {folder.parent}")
        assert not any(word in done.out for word in (b"key", b"password", b"said", b"outside"))
        assert (await box.run("ls /usr/bin | wc -l")).out.strip() not in (b"", b"0")
        assert (await box.run("ls -A /run /var/tmp")).out.decode().split() in ([], ["/run:", "/var/tmp:"])
    finally:
        await box.kill()


async def test_there_is_no_network_unless_it_is_asked_for(pool: SandboxPool, folder: Path) -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    reach = ["python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)"]
    found: dict[str, int] = {}
    for network in (Network("none"), Network("host")):
        box = await pool.create(spec(folder, network=network))
        found[network.mode] = (await box.run(reach)).rc
        await box.kill()
    listener.close()
    assert found["none"] != 0 and found["host"] == 0


async def test_a_command_that_hangs_is_killed_and_a_job_outlives_its_call(box: Sandbox) -> None:
    slow = await box.run("sleep 30 & sleep 30", timeout_s=0.5)
    assert slow.timed_out
    started = await box.run("(sleep 0.5; echo late > late.txt) >/dev/null 2>&1 & echo on")
    assert started.out == b"on\n"
    await asyncio.sleep(1.0)
    assert await box.read("late.txt") == b"late\n"


async def test_git_reads_the_repository(pool: SandboxPool, tmp_path: Path) -> None:
    place = tmp_path.resolve() / "repository"
    place.mkdir()
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    (place / "a").write_text("a")
    box = await pool.create(spec(place, env={"GIT_OPTIONAL_LOCKS": "0"}))
    done = await box.run("git status --porcelain")
    await box.kill()
    assert (done.rc, done.out) == (0, b"?? a\n")


@pytest.mark.parametrize("place", ["/", "/usr", "/tmp", "/home", "/nowhere"])
async def test_a_folder_that_is_no_project_is_refused(place: str, pool: SandboxPool) -> None:
    with pytest.raises(UserError, match=r"no folder"):
        await pool.create(spec(Path(place)))


async def test_the_home_itself_is_refused(pool: SandboxPool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    with pytest.raises(UserError, match="no folder for an agent to write in"):
        await pool.create(spec(folder))


async def test_a_back_end_that_can_not_bind_a_folder_refuses(folder: Path) -> None:
    made = await open_pool(SandboxSettings(backend="process"))
    try:
        with pytest.raises(
            Unsupported, match="can't bind a folder of the host; take sandbox.backend='bubblewrap' or 'local'"
        ):
            await made.create(spec(folder))
        with pytest.raises(Unsupported, match="only around a folder"):
            await made.create(SandboxSpec(network=Network("host")))
    finally:
        await made.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
async def test_root_works_in_somebodys_folder_as_its_owner(pool: SandboxPool, tmp_path: Path) -> None:
    place = tmp_path.resolve() / "theirs"
    place.mkdir()
    os.chown(place, 12345, 12345)
    for above in place.parents:
        if above.stat().st_uid == 0 and above != Path("/") and str(above).startswith("/tmp/"):
            above.chmod(above.stat().st_mode | 0o055)
    box = await pool.create(spec(place))
    await box.write("x", b"x")
    await box.kill()
    assert (place / "x").stat().st_uid == 12345


async def test_a_policed_way_out_is_there_around_a_folder_too(pool: SandboxPool, folder: Path) -> None:
    box = await pool.create(spec(folder, network=Network("allowlist", hosts=("index.example.org",))))
    reach = f"import socket; socket.create_connection({DOOR!r}, 3); print(len(socket.if_nameindex()))"
    done = await box.run(["python3", "-c", reach])
    await box.kill()
    assert done.out == b"1\n", done


@pytest.mark.parametrize(
    "more", [{"image": "one"}, {"snapshot": "one"}, {"read_only_binds": (("/usr", "/x"),)}, {"uid_mode": "range"}]
)
async def test_what_a_folder_can_not_be_combined_with_is_refused(
    more: dict[str, object], pool: SandboxPool, folder: Path
) -> None:
    with pytest.raises(UserError, match="leave out image, snapshot, read_only_binds and uid_mode"):
        await pool.create(spec(folder, **more))


async def test_a_sandbox_around_a_folder_offers_no_snapshot(box: Sandbox) -> None:
    """Its files are the person's own: no layer holds them."""
    with pytest.raises(Unsupported):
        await box.snapshot()


async def test_the_launcher_ends_with_its_sandbox(pool: SandboxPool, folder: Path) -> None:
    """No process waits for one that is gone."""
    before = children()
    box = await pool.create(spec(folder))
    await box.run("sleep 1000 >/dev/null 2>&1 &")
    assert children() != before
    await box.kill()
    assert children() == before


def children() -> set[str]:
    return {pid for thread in Path("/proc/self/task").glob("*/children") for pid in thread.read_text().split()}


async def test_without_bubblewrap_our_own_namespaces_serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_bubblewrap(monkeypatch)
    pool, box, refusals = await open_around(spec(folder))
    try:
        assert (await box.run("echo after > a.txt")).rc == 0 and (folder / "a.txt").read_text() == "after\n"
        assert pool.probe().backend == "local"
        assert refusals == ("back end bubblewrap: there is no bwrap; install the package bubblewrap",)
    finally:
        await pool.close()


async def test_where_no_back_end_serves_each_refusal_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_bubblewrap(monkeypatch)

    async def refuse(*_: object) -> None:
        raise Unsupported("back end local: user namespaces are off")

    monkeypatch.setattr("etude.sandbox.local_pool.LocalPool.open", refuse)
    with pytest.raises(Unsupported, match="there is no bwrap.* back end local: user namespaces are off"):
        await open_around(spec(folder))


def hide_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, *more, **named: None if name == "bwrap" else real(name, *more, **named)
    )
