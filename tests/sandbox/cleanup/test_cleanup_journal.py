"""A journal tells what exists, wherever death cuts it short, and costs next to nothing."""

from __future__ import annotations

import fcntl
import os
import statistics
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.sandbox.cleanup import journal, journal_state
from etude.sandbox.cleanup.ledger import CleanupLedger, default_folder
from etude.sandbox.cleanup.undo import KillProcess, RemoveFile, RemoveFolder, RemoveGroup, RunCommand

WAYS = (
    KillProcess(4, 5),
    RemoveGroup("/sys/fs/cgroup/etude-1"),
    RemoveFolder("/tmp/etude-1"),
    RemoveFile("/run/etude/1"),
    RunCommand(("true",)),
)
NAMES = st.sampled_from(["a", "b", "ü\n"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), NAMES, st.sampled_from(WAYS)),
        st.tuples(st.just("add"), NAMES, st.sampled_from(WAYS)),
        st.tuples(st.just("leave"), NAMES, st.just(WAYS[0])),
    ),
    max_size=12,
)


def _told(path: Path) -> dict[str, list[object]]:
    found = journal_state.read(path)
    return {} if found is None else {name: list(entry.undo) for name, entry in found.entries.items()}


@settings(max_examples=60)
@given(steps=STEPS, share=st.floats(0, 1))
def test_wherever_death_cuts_it_the_journal_tells_the_state_after_its_last_whole_line(steps, share) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = CleanupLedger(Path(folder, "ledger")).open("test")
        states: list[tuple[int, dict[str, list[object]]]] = [(0, {}), (book.path.stat().st_size, {})]
        model: dict[str, list[object]] = {}
        for word, name, way in steps:
            if word == "enter":
                book.enter(name, "thing", [way])
                model = model | {name: [way]}
            elif word == "add":
                book.add(name, way)
                model = {key: [*ways, way] if key == name else ways for key, ways in model.items()}
            else:
                book.leave(name)
                model = {key: ways for key, ways in model.items() if key != name}
            states.append((book.path.stat().st_size, model))
        cut = int(share * book.path.stat().st_size)
        os.truncate(book.path, cut)
        # A line without its line end is whole too, as far as it can be read.
        expected = [state for size, state in states if size <= cut + 1][-1]
        assert _told(book.path) == expected
        book.close()


def test_what_has_come_and_gone_is_left_out_in_time_and_nothing_else(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_LONG_LINES", 50)
    book = CleanupLedger(folder).open("test")
    book.enter("stays", "thing", [WAYS[0]])
    book.add("stays", WAYS[1])
    for number in range(200):
        book.enter(f"{number}", "thing")
        book.leave(f"{number}")
    assert len(book.path.read_bytes().splitlines()) < 60
    assert _told(book.path) == {"stays": [WAYS[0], WAYS[1]]}
    book.leave("stays")
    book.close()
    assert list(folder.iterdir()) == []


def test_a_full_disk_refuses_what_would_be_made_and_forgets_nothing_that_has_gone(
    folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = CleanupLedger(folder).open("test")
    book.enter("first", "thing")
    with monkeypatch.context() as full:
        full.setattr(journal.os, "write", lambda fd, data, write=os.write: write(fd, data[:7]))
        with pytest.raises(OSError, match="could be written"):
            book.enter("second", "thing")
        book.leave("first")
    assert set(_told(book.path)) == {"first"}, "not written yet"
    book.enter("third", "thing")
    assert set(_told(book.path)) == {"third"}
    book.close()


def test_a_copy_that_can_not_be_made_costs_nothing_but_the_copy(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving never raises, and no lock stays behind that would keep reapers out for ever."""
    monkeypatch.setattr(journal, "_LONG_LINES", 10)
    book = CleanupLedger(folder).open("test")
    book.enter("stays", "thing")
    with monkeypatch.context() as full:

        def refuse(path: object, *rest: object, opened=os.open) -> int:
            if str(path).endswith(".new"):
                raise OSError(28, "No space left on device")
            return opened(path, *rest)

        full.setattr(journal.os, "open", refuse)
        for number in range(30):
            book.enter(f"{number}", "thing")
            book.leave(f"{number}")
    fd = os.open(book.path, os.O_WRONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    assert set(_told(book.path)) == {"stays"}
    book.leave("stays")
    book.close()


def test_an_owner_gives_signs_without_an_event_loop(folder) -> None:
    ledger = CleanupLedger(folder)
    book = ledger.open("test", beat_s=0.01)
    first = ledger.journal_states()[0].beat
    end_s = time.monotonic() + 10
    while ledger.journal_states()[0].beat == first:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    book.close()


def test_entering_and_leaving_costs_less_than_a_third_of_a_millisecond(folder) -> None:
    """10 us on a quiet machine; ten times that is the bar for a busy one."""
    book = CleanupLedger(folder).open("test")
    times = []
    for number in range(300):
        start_s = time.perf_counter()
        book.enter(f"{number}", "sandbox", WAYS, {"task": "x" * 40})
        book.add(f"{number}", WAYS[0])
        book.leave(f"{number}")
        times.append(time.perf_counter() - start_s)
    book.close()
    assert statistics.median(times) < 0.003


def test_a_ledger_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        CleanupLedger(tmp_path)


def test_a_user_without_a_home_has_a_ledger_below_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_folder() == tmp_path / "state" / "etude" / "ledger"
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/absent")
    monkeypatch.setattr("etude.sandbox.cleanup.ledger.os.access", lambda path, mode: False)
    assert default_folder().parent == Path(tempfile.gettempdir())
