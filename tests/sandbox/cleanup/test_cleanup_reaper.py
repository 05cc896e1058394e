"""What dead owners left goes, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from etude.sandbox.cleanup import process as being
from etude.sandbox.cleanup.errors import CleanupError
from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.cleanup.process import ProcessIdentity
from etude.sandbox.cleanup.reaper import Reaper, ReapResult
from etude.sandbox.cleanup.undo import KillProcess, RemoveFile, RemoveFolder, RunCommand


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def _dead(process: subprocess.Popen[bytes]) -> bool:
    return ProcessIdentity.of(process.pid) is None


def test_after_sigkill_of_an_owner_all_it_entered_goes_and_no_other_owners(folder, tmp_path, owner, sleeper) -> None:
    """Tests 11 and 12 of docs/sandbox.md: of a library; with sandboxes in tests/sandbox/lifetimes."""
    for name in ("etude-dead", "etude-living"):
        (tmp_path / name / "below").mkdir(parents=True)
    claim = tmp_path / "etude-claim"
    claim.touch()
    mine = CleanupLedger(folder).open("test")
    mine.enter("x", "sandbox", [RemoveFolder(str(tmp_path / "etude-living"))])
    dead = owner(
        f"journal.enter('x', 'sandbox', [RemoveFolder({str(tmp_path / 'etude-dead')!r}), RemoveFile({str(claim)!r})], {{'a': 'b'}});"
        f"journal.add('x', KillProcess.of({sleeper.pid}))"
    )
    reaper = Reaper(CleanupLedger(folder))
    assert reaper.reap() == [], "both live"
    dead.kill()
    dead.wait()
    assert reaper.reap() == [ReapResult("x", "sandbox", f"a test's owner ({dead.pid})")]
    assert _dead(sleeper) and not claim.exists()
    assert sorted(path.name for path in tmp_path.glob("etude-*")) == ["etude-living"]
    assert reaper.reap() == []
    mine.leave("x")
    mine.close()
    assert list(folder.iterdir()) == []


def test_a_zombie_owner_is_a_dead_owner(folder, owner) -> None:
    dead = owner("journal.enter('x', 'sandbox')")
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert [one.id for one in Reaper(CleanupLedger(folder)).reap()] == ["x"]


def test_a_number_that_another_process_took_over_is_left_alone(sleeper) -> None:
    me = KillProcess.of(sleeper.pid)
    assert me is not None
    KillProcess(me.pid, me.start_ticks - 1).undo()
    assert not _dead(sleeper)
    me.undo()
    me.undo()
    assert _dead(sleeper)


@pytest.mark.parametrize("lost", [FileNotFoundError(2, "gone"), OSError(39, "not empty")])
def test_a_folder_that_somebody_else_clears_meanwhile_goes_whole(tmp_path, monkeypatch, lost) -> None:
    for name in "abc":
        (tmp_path / "etude-x" / name).mkdir(parents=True)
        (tmp_path / "etude-x" / name / "file").touch()
    unlink, races = os.unlink, [lost]

    def raced(path, **where) -> None:
        unlink(path, **where)
        if races:
            raise races.pop()

    monkeypatch.setattr(os, "unlink", raced)
    RemoveFolder(str(tmp_path / "etude-x")).undo()
    assert not (tmp_path / "etude-x").exists() and not races


def test_a_folder_that_is_never_empty_is_stuck(tmp_path, monkeypatch) -> None:
    (tmp_path / "etude-x").mkdir()

    def refuse(path) -> None:
        raise OSError(39, "not empty", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(CleanupError, match="not empty"):
        RemoveFolder(str(tmp_path / "etude-x")).undo()


def test_an_owner_that_closed_with_things_left_has_let_go_of_them(folder, tmp_path) -> None:
    (tmp_path / "etude-x").mkdir()
    book = CleanupLedger(folder).open("test")
    book.enter("x", "scratch", [RemoveFolder(str(tmp_path / "etude-x"))])
    book.close()
    assert [one.id for one in Reaper(CleanupLedger(folder)).reap()] == ["x"]
    assert not (tmp_path / "etude-x").exists() and list(folder.iterdir()) == []


def test_a_leap_of_the_clock_costs_no_one_anything_and_lasting_silence_does(folder) -> None:
    """Test 24 of docs/sandbox.md: neither an hour's leap of the wall clock nor one of the monotonic clock itself (a machine that was
    suspended whole) is an owner's death."""
    now = [1000.0]
    ledger = CleanupLedger(folder, clock=lambda: now[0])
    book = ledger.open("test", lease_s=60, beat_s=10)
    book._stop.set()  # the machine's own clock must not speak in between
    book.enter("x", "sandbox")
    reaper = Reaper(ledger, clock=lambda: now[0])
    assert reaper.reap() == []
    now[0] += 3600
    assert reaper.reap() == [], "all are late at once"
    book._write([{"beat": now[0]}])
    now[0] += 79
    assert reaper.reap() == [], "within the lease and two heartbeats"
    now[0] += 2
    assert reaper.reap() == [], "first seen silent"
    now[0] += 19
    assert reaper.reap() == []
    now[0] += 2
    assert [one.id for one in reaper.reap()] == ["x"]
    assert book.path.exists(), "it may wake up and write on"
    book.leave("x")
    book.close()


def test_a_leap_of_the_wall_clock_is_not_even_noticed(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test 24 of docs/sandbox.md."""
    book = CleanupLedger(folder).open("test")
    book.enter("x", "sandbox")
    monkeypatch.setattr(time, "time", lambda start=time.time: start() + 3600)
    assert Reaper(CleanupLedger(folder)).reap() == []
    book.leave("x")
    book.close()


def test_after_a_reboot_files_go_and_process_numbers_mean_nothing(
    folder, tmp_path, owner, sleeper, monkeypatch
) -> None:
    """Fault model: node reboot; the ledger is there, and its numbers are other people's."""
    (tmp_path / "etude-x").mkdir()
    owner(
        f"journal.enter('x', 'sandbox', [KillProcess.of({sleeper.pid}), RunCommand(('false',)), RemoveFolder({str(tmp_path / 'etude-x')!r})])"
    )
    monkeypatch.setattr(being, "boot_id", lambda: "another boot")
    assert [(one.id, one.stuck) for one in Reaper(CleanupLedger(folder)).reap()] == [("x", "")]
    assert not _dead(sleeper) and not (tmp_path / "etude-x").exists()


def test_owners_of_another_pid_namespace_are_no_ones_to_judge(folder, owner, monkeypatch) -> None:
    dead = owner("journal.enter('x', 'sandbox')")
    dead.kill()
    dead.wait()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(being, "pid_namespace_id", lambda: "pid:[1]")
        assert Reaper(CleanupLedger(folder)).reap() == []
    assert len(Reaper(CleanupLedger(folder)).reap()) == 1


def test_what_will_not_go_is_quarantined_said_and_tried_again(folder, tmp_path) -> None:
    flag = tmp_path / "now"
    book = CleanupLedger(folder).open("test")
    book.enter("x", "container", [RunCommand(("/bin/sh", "-c", f"test -e {flag} || {{ echo it hangs >&2; exit 3; }}"))])
    book.close()
    reaper = Reaper(CleanupLedger(folder))
    for _ in range(2):
        (found,) = reaper.reap()
        assert "ended with 3: it hangs" in found.stuck
    assert "it hangs" in CleanupLedger(folder).journal_states()[0].entries["x"].stuck
    flag.touch()
    assert [one.stuck for one in reaper.reap()] == [""]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", ["/", "/home", "/home/somebody", "etude-x", "/tmp/../etude-x", "/tmp/etude/a/b/c"])
def test_nothing_is_removed_that_is_not_ours_by_its_name(path: str, folder) -> None:
    book = CleanupLedger(folder).open("test")
    book.enter("x", "scratch", [RemoveFolder(path), RemoveFile(path)])
    book.close()
    assert "left alone" in Reaper(CleanupLedger(folder)).reap()[0].stuck


def test_a_line_of_another_version_is_kept_and_said(folder) -> None:
    book = CleanupLedger(folder).open("test")
    book.enter("x", "thing")
    book._write([{"add": "x", "undo": [["teleporter", 1]]}, {"word": "of the future"}])
    book.close()
    assert "the version that wrote it" in Reaper(CleanupLedger(folder)).reap()[0].stuck


def test_of_two_reapers_at_once_one_does_it(folder, owner) -> None:
    dead = owner("[journal.enter(f'{n}', 'c', [RunCommand(('sleep', '0.05'))]) for n in range(4)]")
    dead.kill()
    dead.wait()
    found: list[ReapResult] = []
    reapers = [threading.Thread(target=lambda: found.extend(Reaper(CleanupLedger(folder)).reap())) for _ in range(3)]
    for one in reapers:
        one.start()
    for one in reapers:
        one.join()
    assert sorted(one.id for one in found) == ["0", "1", "2", "3"]


def test_a_file_without_a_word_goes_when_its_owner_has(folder) -> None:
    ledger = CleanupLedger(folder)
    (folder / "4194305-ab.jsonl").write_text('{"pid": 4194')  # beyond the highest number that Linux gives
    (folder / f"{os.getpid()}-ab.jsonl").touch()
    Reaper(ledger).reap()
    assert [path.name for path in folder.iterdir()] == [f"{os.getpid()}-ab.jsonl"]


def test_a_folder_goes_without_what_is_mounted_in_it(tmp_path: Path) -> None:
    """In a mount namespace of its own: the machine's table is not touched."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace of one's own is to be had here")
    (tmp_path / "etude-a b" / "mounted").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    program = f"""
import subprocess
from etude.sandbox.cleanup.errors import CleanupError
from etude.sandbox.cleanup.undo import RemoveFolder
subprocess.run(["mount", "--bind", {str(tmp_path / "precious")!r}, {str(tmp_path / "etude-a b" / "mounted")!r}], check=True)
RemoveFolder({str(tmp_path / "etude-a b")!r}).undo()
"""
    subprocess.run(["unshare", "-Urm", sys.executable, "-c", program], check=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["precious", "file"]


def _group() -> Path:
    """A group of our own in whichever hierarchy lets us, a freezing one first."""
    places = [Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    for place in places:
        group = place / f"etude-test-{os.getpid()}"
        try:
            (group / "inner").mkdir(parents=True)
            return group
        except OSError:
            continue
    pytest.skip("no control group can be made here")


def test_a_control_group_goes_with_frozen_processes_in_it(folder, owner, sleeper) -> None:
    group = _group()
    try:
        (group / "inner" / "cgroup.procs").write_text(str(sleeper.pid))
        for name, word in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
            if (group / "inner" / name).exists():
                (group / "inner" / name).write_text(word)
        dead = owner(f"journal.enter('x', 'sandbox', [RemoveGroup({str(group)!r})])")
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert [one.stuck for one in Reaper(CleanupLedger(folder)).reap()] == [""]
        assert _dead(sleeper) and not group.exists()
    finally:
        for left in (group / "inner", group):
            if left.is_dir():
                left.rmdir()
