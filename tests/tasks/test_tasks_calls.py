"""Values come back from code that lies, loops, explodes or dies, and what is expected never goes in (promise 9)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.errors import SandboxDied
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import ExecResult, SandboxSpec
from etude.tasks import calls as calls_module
from etude.tasks.calls import Call, run_calls, same
from etude.tasks.registry import grade
from etude.tasks.task import Task

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
)
CALLS = [Call("core", "f", [n]) for n in range(3)]


async def _answers(pool: SandboxPool, source: str) -> tuple[list[Any], str]:
    answers = await run_calls({"core.py": source.encode()}, CALLS, pool)
    return [result.value if result.arrived else "-" for result in answers.results], answers.ending


async def test_values_arrive_in_order_whatever_is_printed(pool: SandboxPool) -> None:
    source = "print('import', end='')\ndef f(n):\n    print('ok', end='')\n    return [n, {'a': 'x\\ny'}]\n"
    assert (await _answers(pool, source))[0] == [[n, {"a": "x\ny"}] for n in range(3)]


@pytest.mark.parametrize(
    "body, values, ending",
    [
        ("if n == 1: raise ValueError\n    return n", [0, "-", 2], "exit 0"),
        ("if n == 1:\n        while True: pass\n    return n", [0, "-", "-"], "timed out"),
        ("import os\n    if n == 2: os._exit(0)\n    return n", [0, 1, "-"], "exit 0"),
        ("import sys\n    sys.exit(0)", ["-", "-", "-"], "exit 0"),
        ("return f", ["-", "-", "-"], "exit 0"),
        ("return type('S', (), {'__eq__': lambda a, b: True})()", ["-", "-", "-"], "exit 0"),
        ("return '(' * 90 + ')' * 90 if n else 0", [0, "(" * 90 + ")" * 90, "(" * 90 + ")" * 90], "exit 0"),
        ("return 10 ** 5000 if n == 1 else n", [0, "-", 2], "exit 0"),
    ],
)
async def test_bad_endings_cost_only_their_own_calls(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch, body: str, values: list[Any], ending: str
) -> None:
    monkeypatch.setattr(calls_module, "TIMEOUT_S", 0.5)
    assert await _answers(pool, f"def f(n):\n    {body}\n") == (values, ending)


@pytest.mark.parametrize("body", ["x = [0]\n    while True: x += x", "print('y' * 10**7)", "return 'y' * 10**7"])
async def test_memory_and_output_are_cut(pool: SandboxPool, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(calls_module, "TIMEOUT_S", 1.0)
    values, _ = await _answers(pool, f"def f(n):\n    {body}\n")
    assert "-" in values
    assert not any(isinstance(value, str) and len(value) > 100 for value in values)


async def test_a_result_framed_twice_counts_as_none(pool: SandboxPool) -> None:
    source = (
        "import os, sys\ndef f(n):\n    space = sys._getframe(1).f_globals\n"
        "    os.write(1, ('%s 0 7\\n' % space['nonce']).encode())\n    return 7\n"
    )
    values, _ = await _answers(pool, source)
    assert values[0] == "-"


async def test_a_missing_module_is_no_value(pool: SandboxPool) -> None:
    assert (await run_calls({}, CALLS, pool)).results[0].arrived is False


class _Spy:
    """A pool that keeps what goes in."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool, self.seen = pool, b""

    async def create(self, spec: SandboxSpec) -> Any:
        self.seen += b"".join(spec.files.values()) + repr(spec).encode()
        sandbox = await self.pool.create(spec)
        run = sandbox.run

        async def spied(argv: list[str], **options: Any) -> ExecResult:
            self.seen += repr((argv, options)).encode()
            return await run(argv, **options)

        sandbox.run = spied  # type: ignore[method-assign]
        return sandbox


def _task(want: Any) -> Task:
    return Task(
        id="t",
        category="debugging",
        level="one-bug",
        instruction="fix f",
        files={"core.py": "def f(n):\n    return n\n"},
        test_command=("python", "check.py"),
        grader="outputs",
        hidden={"calls": [{"id": "f/0", "module": "core", "function": "f", "args": [1], "want": want}]},
        metadata={"editable": ["core.py"]},
    )


async def test_what_is_expected_never_enters_the_sandbox(pool: SandboxPool) -> None:
    spy = _Spy(pool)
    verdict = await grade(_task("swordfish"), {}, spy)  # type: ignore[arg-type]
    assert b"python" in spy.seen
    assert b"swordfish" not in spy.seen
    assert not verdict.passed


async def test_infra_trouble_is_raised_and_never_a_score() -> None:
    class Broken:
        async def create(self, spec: SandboxSpec) -> Any:
            raise SandboxDied("gone")

    with pytest.raises(SandboxDied):
        await grade(_task(1), {"core.py": b"def f(n):\n    return 1\n"}, Broken())  # type: ignore[arg-type]


async def test_a_run_that_was_killed_from_outside_is_made_again_and_no_score(pool: SandboxPool) -> None:
    """As the kernel does where memory is short: the code is right, and loses nothing (promise 8)."""
    spy = _Spy(pool)
    source = "import time\ndef f(n):\n    time.sleep(0.2)\n    return n\n"
    striking = asyncio.create_task(_kill_one_inside())
    answers = await run_calls({"core.py": source.encode()}, CALLS, spy)  # type: ignore[arg-type]
    await striking
    assert [result.value for result in answers.results] == [0, 1, 2] and answers.ending == "exit 0"
    assert spy.seen.count(b"SandboxSpec(") == 2


async def test_code_that_kills_itself_does_so_again_and_is_judged_by_that(pool: SandboxPool) -> None:
    source = "import os\ndef f(n):\n    if n: os.kill(os.getpid(), 9)\n    return n\n"
    assert await _answers(pool, source) == ([0, "-", "-"], "exit 137")


async def _kill_one_inside() -> None:
    """The first process in a sandbox below this process that is neither the runner nor the interpreter, numbers 1 and 2."""
    while True:
        parents: dict[int, int] = {}
        inner: list[int] = []
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                facts = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except (FileNotFoundError, ProcessLookupError):
                continue
            pid, spaces = int(facts["Pid"]), facts["NSpid"].split()
            parents[pid] = int(facts["PPid"])
            if len(spaces) > 1 and spaces[-1] not in ("1", "2") and "Z" not in facts["State"]:
                inner.append(pid)
        for pid in inner:
            above = pid
            while above in parents and above != os.getpid():
                above = parents[above]
            if above == os.getpid():
                return os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.005)


@given(VALUES, VALUES)
def test_sameness_is_equality_with_types(left: Any, right: Any) -> None:
    assert same(left, left)
    assert same(left, right) == (repr_sorted(left) == repr_sorted(right))


def repr_sorted(value: Any) -> str:
    """A text that two plain values share exactly if they are equal with their types."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{repr_sorted(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(repr_sorted, value)) + "]"
    return repr(value)
