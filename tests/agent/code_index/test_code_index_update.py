"""An index that was updated is the index one would build from scratch; a kill costs time, never truth."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deadly import deadly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.code_index import update
from etude.agent.code_index.index import Index
from etude.agent.code_index.search import MOST_HITS

QUESTIONS = ["parse config file", "retry_policy", "class Store size", "needle", "return value"]
PATHS = ["a.py", "b.py", "pkg/a.py", "pkg/b.py", "pkg/deep/c.js", "notes.md"]
BODIES = [
    "def parse_config(path):\n    return path\n",
    "class Store:\n    def size(self):\n        return 1\n\n    def retry_policy(self, value):\n        return value\n",
    "# needle in prose\nvalue = 1\n",
    "# Title\n\nHow to parse a config file.\n",
    "function retryPolicy(value) {\n  return value;\n}\n",
    "\0binary",
]
edits = st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from([*BODIES, None])), min_size=1, max_size=4)


def answers(index) -> list:
    """Everything a search says, scores to the last bit."""
    return [index.search(question, limit=MOST_HITS) for question in QUESTIONS]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(edits, min_size=1, max_size=12))
def test_after_any_edits_an_update_equals_an_index_built_from_scratch(fresh_lab: Callable, steps: list) -> None:
    lab = fresh_lab()
    index = lab.built()
    for step in steps:
        lab.write({path: body for path, body in step if body is not None or (lab.root / path).exists()})
        index.update(workers=1)
    assert answers(index) == answers(lab.built("scratch"))
    assert index.skip_reasons() == lab.index("scratch").skip_reasons()
    assert lab.notices == []


def test_segments_are_merged_and_the_dead_go_without_a_change_of_answers(lab) -> None:
    lab.write({"start.py": BODIES[0]})
    index = lab.built()
    for n in range(40):
        lab.write({f"f{n}.py": BODIES[n % 2] + f"x{n} = {n}\n", "start.py": BODIES[1] + f"y{n} = 1\n"})
        index.update(workers=1)
    assert index.stats()["segments"] < 16
    assert answers(index) == answers(lab.built("scratch"))
    files = {file.name for file in (lab.home / "store").iterdir()}
    assert len([name for name in files if name.endswith(".seg")]) == index.stats()["segments"]
    assert len(files) == index.stats()["segments"] + 3  # manifest, seen, lock


def test_only_what_changed_is_read_again(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write({f"f{n}.py": f"x{n} = {n}\n" for n in range(20)})
    index = lab.built()
    lab.write({"f3.py": "y = 1\n", "f4.py": None})
    report = index.update(workers=1)
    assert (report.files, report.indexed, report.removed, report.same) == (19, 1, 1, 18)
    generation = index.stats()["generation"]
    report = index.update(workers=1)
    assert (report.indexed, report.same) == (0, 19) and index.stats()["generation"] == generation


def test_a_touched_file_is_compared_and_not_indexed_again(lab) -> None:
    lab.write({"a.py": BODIES[0]})
    index = lab.built()
    lab.age("a.py", 1800.0)
    report = index.update(workers=1)
    assert (report.indexed, report.same) == (0, 1)


def test_an_edit_within_one_tick_that_keeps_the_size_is_seen(lab) -> None:
    lab.write({"a.py": "aaa = 1\n"})
    now = time.time_ns()
    os.utime(lab.root / "a.py", ns=(now, now))
    index = lab.built()
    (lab.root / "a.py").write_text("bbb = 1\n")
    os.utime(lab.root / "a.py", ns=(now, now))
    index.update(workers=1)
    assert index.search("bbb") and not index.search("aaa")


def test_a_file_that_becomes_binary_or_ignored_leaves_the_index(lab) -> None:
    lab.write({"a.py": "needle = 1\n", "b.py": "needle = 2\n", "c.py": "needle = 3\n"})
    index = lab.built()
    lab.write({"a.py": b"\0needle", ".gitignore": "b.py\n"})
    index.update(workers=1)
    assert [hit.path for hit in index.search("needle")] == ["c.py"]


def lay_out(root: Path, count: int) -> None:
    """Files that can be identified by their names."""
    root.mkdir(exist_ok=True)
    for n in range(count):
        (root / f"f{n:04}.py").write_text(f"def needle_{n}(value):\n    return value\n" + f"# filler {n}\n" * 60)


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def test_a_worker_that_dies_costs_nothing_but_time(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(lab.root, 240)
    monkeypatch.setattr(update, "ALONE_BYTES", 1 << 14)
    before, killed = children(), []

    def kill_one() -> None:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for pid in children() - before:
                if b"spawn_main" in command_of(pid):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    index = lab.index()
    report = index.update(workers=2)
    killer.join()
    assert killed and report.files == 240 and report.skipped == {}
    assert index.search("needle_77", limit=1)[0].path == "f0077.py"


def test_workers_that_die_at_any_moment_cost_nothing_but_time(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was just started while another dies, and one that waits for its next batch."""
    lay_out(lab.root, 240)
    monkeypatch.setattr(update, "ALONE_BYTES", 1 << 14)
    before, killed, over = children(), set(), threading.Event()

    def kill_many() -> None:
        while not over.wait(0.02) and len(killed) < 12:
            for pid in [pid for pid in children() - before - killed if b"spawn_main" in command_of(pid)][:1]:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    killer = threading.Thread(target=kill_many)
    killer.start()
    report = lab.index().update(workers=3)
    over.set()
    killer.join()
    assert len(killed) > 3 and report.files == 240 == report.indexed + len(report.skipped)
    assert not [pid for pid in children() - before if b"spawn_main" in command_of(pid)]


def test_a_file_that_always_kills_its_reader_is_skipped_alone(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.agent.code_index import workers
    from etude.agent.code_index.reading import FileBatch, FileToIndex
    from etude.agent.code_index.walk import Stamp

    lay_out(lab.root, 9)
    store = lab.home / "store"
    store.mkdir()
    monkeypatch.setattr(workers, "read_batch", deadly)
    batch = FileBatch(lab.root, store / "a.seg", [FileToIndex(f"f{n:04}.py", Stamp(0, 1), b"") for n in range(9)])
    monkeypatch.setenv("DEADLY", "f0005.py")
    done = list(workers.read_all([batch], 2))
    outcomes = {o.wanted.path: (o.status, o.reason) for part in done for o in part.outcomes}
    assert outcomes.pop("f0005.py") == ("skipped", workers.CRASHED)
    assert len(outcomes) == 8 and set(outcomes.values()) == {("indexed", "")}


KILLED_BUILD = """
import sys
from pathlib import Path
from etude.agent.code_index import update
from etude.agent.code_index.index import Index
update.BATCH_FILES, update.COMMIT_EVERY_S = 30, 0.0
Index(Path(sys.argv[1]), Path(sys.argv[2])).update(workers=1, progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.parametrize("batches", [0, 2, 3])
def test_a_build_killed_anywhere_goes_on_and_ends_the_same(lab, batches: int) -> None:
    lay_out(lab.root, 120)
    for n in range(120):
        lab.age(f"f{n:04}.py")
    words = [sys.executable, "-c", KILLED_BUILD, str(lab.root), str(lab.home / "store")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(batches and batches + 1):  # the first line says how many there are to read
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    report = lab.index().update(workers=1)
    assert report.files == 120 and (batches == 0 or report.indexed < 120)
    assert answers(lab.index()) == answers(lab.built("scratch"))


def test_two_updates_at_once_wait_for_each_other(lab) -> None:
    lay_out(lab.root, 60)
    reports: list = []
    threads = [threading.Thread(target=lambda: reports.append(lab.index().update(workers=1))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 3 and {report.files for report in reports} == {60}
    assert answers(lab.index()) == answers(lab.built("scratch"))


def test_readers_never_fail_while_a_writer_works(lab) -> None:
    lab.write({f"f{n}.py": f"def needle_{n}():\n    return {n}\n" for n in range(30)})
    lab.built()
    stop, troubles, asked = threading.Event(), [], []

    def read(index: Index) -> None:
        while not stop.is_set():
            try:
                asked.append(len(index.search("needle return", limit=5)))
            except BaseException as error:  # noqa: BLE001 - the assertion below names it
                troubles.append(error)
                return

    threads = [threading.Thread(target=read, args=(lab.index(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    writer = lab.index()
    for n in range(25):
        lab.write({f"g{n}.py": f"def needle_g{n}():\n    return 1\n", f"f{n}.py": None})
        writer.update(workers=1)
    stop.set()
    for thread in threads:
        thread.join()
    assert troubles == [] and lab.notices == [] and set(asked) == {5}
    assert lab.index().search("needle_g24", limit=1)[0].path == "g24.py"
