"""The person's own folder: nothing leads out of it, files are replaced whole, commands leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest

from etude.agent.workspace import local_folder as local_module
from etude.agent.workspace import local_process
from etude.agent.workspace import workspace as workspace_module
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.operations import PathOutside
from etude.agent.workspace.scripts import kill_tree
from etude.agent.workspace.text_file import TextFile
from etude.agent.workspace.workspace import Workspace, WorkspaceError
from etude.sandbox.errors import DiskFull, InfraError, OutputLimit, UserError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "a.py").write_text("a = 1\n")
    (tmp_path / "secret").write_text("key\n")
    return tmp_path / "work"


async def test_no_path_and_no_link_leads_out(root: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    folder = LocalFolder(root)
    for path in ("../secret", "file", "up/secret", str(tmp_path / "secret"), "sub/../../secret", "/etc/hostname"):
        with pytest.raises(PathOutside):
            await folder.read(path)
        with pytest.raises(PathOutside):
            await folder.write(path, b"x")
        with pytest.raises(WorkspaceError, match="lies outside of the workspace"):
            await Workspace(folder).save(path, TextFile.like("x", None))
    assert (tmp_path / "secret").read_text() == "key\n"
    await folder.remove("file")  # the link itself
    assert (tmp_path / "secret").exists() and not (root / "file").is_symlink()


async def test_what_is_allowed_may_be_read_and_written(root: Path, tmp_path: Path) -> None:
    workspace = Workspace(LocalFolder(root, allowed=[tmp_path / "other"]))
    (tmp_path / "other").mkdir()
    place = str(tmp_path / "other" / "x")
    await workspace.save(place, TextFile.like("x\n", None))
    assert (await workspace.load(place)).text == "x\n"


async def test_links_inside_are_followed_and_stay_links(root: Path) -> None:
    (root / "link.py").symlink_to("a.py")
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    workspace = Workspace(LocalFolder(root), lambda *change: changes.append(change))
    assert (await workspace.load("link.py")).text == "a = 1\n"
    await workspace.save("link.py", TextFile.like("a = 2\n", None))
    assert (root / "link.py").is_symlink() and (root / "a.py").read_text() == "a = 2\n"
    assert changes == [("link.py", b"a = 1\n", b"a = 2\n")]


async def test_a_write_keeps_the_mode_and_is_whole_or_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    folder = LocalFolder(root)
    await folder.write("run.sh", b"new")
    await folder.write("made/deep.txt", b"x")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "made/deep.txt").stat().st_mode) == 0o644

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(DiskFull):
        await folder.write("run.sh", b"newer")
    assert (root / "run.sh").read_bytes() == b"new" and sorted(os.listdir(root)) == ["a.py", "made", "run.sh", "sub"]


async def test_journal_hears_of_every_change_by_tools(root: Path) -> None:
    changes: list[tuple[str, bytes | None, bytes | None]] = []
    workspace = Workspace(LocalFolder(root), lambda *change: changes.append(change))
    await workspace.save("new.py", TextFile.like("x\n", None))
    await workspace.save("a.py", TextFile.like("a = 2\n", None))
    await workspace.remove("a.py")
    assert changes == [("new.py", None, b"x\n"), ("a.py", b"a = 1\n", b"a = 2\n"), ("a.py", b"a = 2\n", None)]
    for path, before, _ in reversed(changes):
        await workspace.restore(path, before)
    assert (root / "a.py").read_text() == "a = 1\n" and not (root / "new.py").exists()


async def test_what_is_no_folder_is_refused_with_a_remedy(root: Path) -> None:
    with pytest.raises(UserError, match="is not a folder; give the folder to work in"):
        LocalFolder(root / "a.py")
    with pytest.raises(OutputLimit):
        await LocalFolder(root).list(max_entries=1)


def children(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in command and b"sleep" in command:
            found.append(int(name))
    return found


# A child in a session of its own that ignores SIGTERM, and one whose parent has gone.
STUBBORN = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 61{0}' &) ; setsid sleep 61{0} & sleep 61{0}"


async def test_a_time_out_kills_children_that_hid(root: Path) -> None:
    folder, mark = LocalFolder(root), f".{os.getpid()}1"
    result = await folder.run(STUBBORN.format(mark), timeout_s=0.5)
    assert result.timed_out and result.rc == 137 and children(mark) == []
    assert (await folder.run("echo on")).out == b"on\n"


async def test_a_cancelled_command_is_killed_with_its_children(root: Path) -> None:
    mark = f".{os.getpid()}2"
    task = asyncio.create_task(LocalFolder(root).run(STUBBORN.format(mark), timeout_s=60))
    while not children(mark):
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children(mark) == []


async def test_a_cancellation_that_comes_as_the_command_ends_is_not_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = asyncio.Event()

    async def death(pid: int) -> None:
        await dead.wait()

    monkeypatch.setattr(local_process, "_death", death)
    running = asyncio.create_task(LocalFolder(root).run("true"))
    await asyncio.sleep(0.1)
    dead.set()
    await asyncio.sleep(0)  # it hears of the death, and has not gone on yet
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_command_whose_environment_is_not_to_be_seen_is_killed_too(root: Path) -> None:
    """As that of any command is while it is in its exec: one cancelled there was waited for to its end, and everything with it."""
    mark = f".{os.getpid()}3"
    task = asyncio.create_task(LocalFolder(root).run(["env", "-i", "sleep", f"61{mark}"], timeout_s=90))
    while not children(mark):
        await asyncio.sleep(0.02)
    task.cancel()
    start = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children(mark) == [] and time.monotonic() - start < 30


async def test_a_process_that_will_not_die_is_our_fault_not_a_result(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = kill_tree.end
    monkeypatch.setattr(kill_tree, "end", lambda *report: end(*report) and False)
    with pytest.raises(InfraError, match="stays in the kernel"):
        await LocalFolder(root).run("sleep 60", timeout_s=0.2)


async def test_a_background_child_delays_no_answer_and_output_is_bounded(root: Path) -> None:
    folder = LocalFolder(root)
    start = time.monotonic()
    result = await folder.run("sleep 3 & echo here")
    assert result.out == b"here\n" and time.monotonic() - start < 2
    result = await folder.run("yes | head -c 3000000", max_output_bytes=1000)
    assert result.truncated and len(result.out) <= 1000
    result = await folder.run(["cat"], stdin=b"x" * 200_000, max_output_bytes=1 << 20)
    assert len(result.out) == 200_000


@pytest.mark.parametrize(
    ("argv", "rc", "words"),
    [
        (["no-such-program"], 127, b"command not found"),
        (["./a.py"], 126, b"Permission"),
        (["./none"], 127, b"no such file"),
    ],
)
async def test_what_does_not_start_answers_as_a_shell_would(root: Path, argv: list[str], rc: int, words: bytes) -> None:
    result = await LocalFolder(root).run(argv)
    assert result.rc == rc and words in result.err


async def test_outputs_lie_next_to_the_folder_and_go_with_the_session(root: Path) -> None:
    folder = LocalFolder(root)
    workspace = Workspace(folder)
    assert await workspace.keep_output("1.txt", b"all of it") == "$OUTPUTS/1.txt"
    shown = await folder.run('cat "$OUTPUTS/1.txt"; echo "$OUTPUTS"')
    assert shown.out.startswith(b"all of it") and (await workspace.load("$OUTPUTS/1.txt")).text == "all of it"
    with pytest.raises(WorkspaceError):
        await workspace.load("$OUTPUTS/../../etc/passwd")
    place = shown.out.decode().removeprefix("all of it").strip()
    assert os.path.isdir(place) and not place.startswith(str(root))
    await folder.kill()
    assert not os.path.exists(place)


@pytest.mark.parametrize("path", ["a/" * 100_000, "$OUTPUTS/" + "x" * 200_000])
async def test_a_path_longer_than_any_is_refused_before_it_is_walked(tmp_path: Path, path: str) -> None:
    folder = Workspace(LocalFolder(tmp_path))
    for call in (
        folder.load(path),
        folder.read(path),
        folder.write(path, ""),
        folder.entries(path),
        folder.remove(path),
    ):
        with pytest.raises(WorkspaceError, match="is no path: it has 200,0"):
            await call


@pytest.mark.parametrize("path", ["$OUTPUTS/x.txt", "$OUTPUTS//x.txt", "$OUTPUTS/./a/../x.txt"])
async def test_a_new_file_of_the_outputs_is_written_whatever_lies_under_its_plain_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    plain = tmp_path / "plain"
    (plain / "elsewhere").mkdir(parents=True)
    (plain / "x.txt").symlink_to(plain / "elsewhere" / "x.txt")
    (tmp_path / "work").mkdir()
    for module in (workspace_module, local_module):
        monkeypatch.setattr(module, "OUTPUTS_FOLDER", str(plain))
    machine = LocalFolder(tmp_path / "work")
    folder = Workspace(machine)
    assert await folder.bytes_of(path) is None
    await folder.restore(path, b"x")
    assert await folder.bytes_of(path) == b"x" and not (plain / "elsewhere" / "x.txt").exists()
    await machine.kill()
