"""Sandboxes behave as dictionaries of files, whatever is done to them in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from etude.sandbox.errors import SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

_MOST = 5  # live at once
PATHS = st.sampled_from(["a", "b", "d/a", "d/e/a", "ä ö"])
DATA = st.binary(max_size=200)
Files = dict[str, bytes]


class Model(RuleBasedStateMachine):
    """`pool` and `loop` are set by the test."""

    pool: Any
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.boxes: list[tuple[Any, Files]] = []
        self.frozen: list[tuple[Any, Files]] = []

    def _do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def _some(self, number: int) -> tuple[Any, Files]:
        return self.boxes[number % len(self.boxes)]

    def _born(self, answers: list[Any], files: Files) -> None:
        for one in answers:
            assert not isinstance(one, SandboxError), one
            self.boxes.append((one, dict(files)))

    @initialize()
    def begin(self) -> None:
        self.create({"a": b"1"})

    @precondition(lambda self: len(self.boxes) < _MOST)
    @rule(files=st.dictionaries(PATHS, DATA, max_size=3))
    def create(self, files: Files) -> None:
        self._born([self._do(self.pool.create(SandboxSpec(files=files, disk_mb=4)))], files)

    @precondition(lambda self: self.boxes)
    @rule(number=st.integers(0, 99), path=PATHS, data=DATA)
    def write(self, number: int, path: str, data: bytes) -> None:
        box, files = self._some(number)
        self._do(box.write(path, data))
        files[path] = data

    @precondition(lambda self: self.boxes)
    @rule(number=st.integers(0, 99), path=PATHS, word=st.sampled_from(["x", "yz"]))
    def run_a_command_that_adds_to_a_file(self, number: int, path: str, word: str) -> None:
        box, files = self._some(number)
        done = self._do(
            box.run(["/bin/sh", "-c", 'mkdir -p "$(dirname "$1")"; printf %s "$2" >> "$1"', "sh", path, word])
        )
        assert done.rc == 0, done
        files[path] = files.get(path, b"") + word.encode()

    @precondition(lambda self: self.boxes)
    @rule(number=st.integers(0, 99), path=PATHS)
    def remove(self, number: int, path: str) -> None:
        box, files = self._some(number)
        if path in files:
            self._do(box.remove(path))
            del files[path]
        else:
            with pytest.raises(UserError):
                self._do(box.read(path))

    @precondition(lambda self: self.boxes)
    @rule(number=st.integers(0, 99))
    def run_a_command_that_replaces_a_folder(self, number: int) -> None:
        box, files = self._some(number)
        assert self._do(box.run("rm -rf d; mkdir d; echo new > d/a")).rc == 0
        for path in [path for path in files if path.startswith("d/")]:
            del files[path]
        files["d/a"] = b"new\n"

    @precondition(lambda self: self.boxes and len(self.boxes) < _MOST and self.pool.probe().snapshots)
    @rule(number=st.integers(0, 99), n=st.integers(1, 2))
    def fork(self, number: int, n: int) -> None:
        box, files = self._some(number)
        self._born(self._do(box.fork(n)), files)

    @precondition(lambda self: self.boxes and self.pool.probe().snapshots)
    @rule(number=st.integers(0, 99))
    def snapshot(self, number: int) -> None:
        box, files = self._some(number)
        self.frozen.append((self._do(box.snapshot()), dict(files)))

    @precondition(lambda self: self.frozen and len(self.boxes) < _MOST)
    @rule(number=st.integers(0, 99), n=st.integers(1, 2))
    def restore(self, number: int, n: int) -> None:
        ref, files = self.frozen[number % len(self.frozen)]
        self._born(self._do(self.pool.restore(ref, SandboxSpec(disk_mb=4), n)), files)

    @precondition(lambda self: self.boxes)
    @rule(number=st.integers(0, 99))
    def kill(self, number: int) -> None:
        box, files = self.boxes.pop(number % len(self.boxes))
        self._compare(box, files)
        self._do(box.kill())
        with pytest.raises(SandboxNotFound):
            self._do(box.read("a"))

    def _compare(self, box: Any, files: Files) -> None:
        assert self._do(box.export(".")) == files

    def teardown(self) -> None:
        for box, files in self.boxes:
            self._compare(box, files)
            self._do(box.kill())
        assert self.pool.list() == []


def settings_of(folder: Path) -> SandboxSettings:
    return SandboxSettings(backend="local", ledger=str(folder / "ledger"), layers=str(folder / "layers"))


@pytest.fixture
def looped(tmp_path: Path) -> Iterator[tuple[asyncio.AbstractEventLoop, LocalPool]]:
    loop = asyncio.new_event_loop()
    try:
        pool = loop.run_until_complete(open_pool(settings_of(tmp_path)))
    except Unsupported as error:
        loop.close()
        pytest.skip(str(error))
    assert isinstance(pool, LocalPool)
    yield loop, pool
    loop.run_until_complete(pool.close())
    loop.close()


@pytest.mark.parametrize(
    "examples, steps", [(12, 15), pytest.param(300, 40, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)])]
)
def test_sandboxes_are_dictionaries_of_files(examples: int, steps: int, looped) -> None:
    loop, pool = looped

    class Machine(Model):
        pass

    Machine.loop, Machine.pool = loop, pool
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
