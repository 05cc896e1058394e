"""Graded code replies from a process that can't reach its grader, and what it leaves is read within limits (promises 8 and 9)."""

from __future__ import annotations

import asyncio
import doctest
import errno
import json
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.sandbox.errors import InfraError, SandboxDied, Unsupported, UserError
from etude.sandbox.protocol import SandboxPool
from etude.tasks import bounded as bounded_module
from etude.tasks.bounded import LimitReached, run_bounded, run_bounded_if_large
from etude.tasks.calls import Call, run_calls
from etude.tasks.graders.examples import ExampleGroup, read_examples, run_examples
from etude.tasks.graders.workflow import MAX_COMMANDS, Command, WorkflowError, commands_of
from etude.tasks.grading import graded
from etude.tasks.isolated import NOT_PLAIN, plain_value
from etude.tasks.running.channel import ParentReport, Prepared
from etude.tasks.running.testrun import verified_run
from etude.tasks.task import Task, Verdict

CALLS = [Call("core", "f", [n]) for n in range(3)]

# Looks through every frame and object for what could speak to the host, and uses all of it.
REACH = """
import gc, os, sys
LINES = {lines!r}
def reach():
    spaces, frame = [], sys._getframe()
    while frame is not None:
        spaces += [frame.f_globals, frame.f_locals]
        frame = frame.f_back
    spaces += [found for found in gc.get_objects() if isinstance(found, dict) and "token" in found]
    words = {{value for space in spaces for key, value in list(space.items()) if key in ("nonce", "token") and isinstance(value, str)}}
    for fd in range(1, 20):
        for word in words or {{"0"}}:
            for line in LINES:
                try:
                    os.write(fd, ("\\n%s %s\\n" % (word, line)).encode())
                except OSError:
                    pass
"""


def _reaching(*lines: str) -> str:
    return REACH.format(lines=lines) + "def f(n):\n    reach()\n    return n\n"


@pytest.mark.parametrize("size", [20_000, 60_000, 1_000_000])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_value_that_is_too_long_is_lost_alone(pool: SandboxPool, size: int, number: int) -> None:
    source = f"def f(n):\n    return chr(0x1F600) * {size} if n == {number} else n\n"
    answers = await run_calls({"core.py": source.encode()}, CALLS, pool)
    values = [result.value for result in answers.results if result.arrived]
    assert [value for value in values if isinstance(value, int)] == [n for n in range(3) if n != number], answers


@pytest.mark.parametrize("line", ["0 7", "² 1", "-1", "-2", "1 '7'", "'7'", "['" * 50_000])
async def test_code_that_writes_to_everything_it_can_find_forges_no_value(pool: SandboxPool, line: str) -> None:
    answers = await run_calls({"core.py": _reaching(line).encode()}, CALLS, pool)
    values = [result.value for result in answers.results if result.arrived]
    assert values in ([], [0, 1, 2]), answers  # nothing, or what the function really returns


async def test_code_that_replies_for_a_call_that_was_not_asked_has_no_result(pool: SandboxPool) -> None:
    source = (
        "import os, sys\ndef f(n):\n    space = sys._getframe(1).f_back.f_locals\n"
        "    if n == 2:\n        for _ in range(2): os.write(space['replying'], (space['token'] + \" '7'\\n\").encode())\n    return n\n"
    )
    answers = await run_calls({"core.py": source.encode()}, CALLS, pool)
    assert [result.arrived for result in answers.results] == [False] * 3 and answers.ending == "replied out of turn"


async def test_the_parent_of_graded_code_can_not_be_read(pool: SandboxPool) -> None:
    source = """
import os
def f(n):
    found = []
    for name in ("mem", "environ", "fd", "maps"):
        try:
            place = "/proc/%d/%s" % (os.getppid(), name)
            os.listdir(place) if name == "fd" else open(place, "rb").read(1)
            found.append(name)
        except OSError:
            pass
    return found
"""
    answers = await run_calls({"core.py": source.encode()}, CALLS[:1], pool)
    assert answers.results[0].value == [], answers


@pytest.mark.parametrize(
    "value", ["10**5000", "'\\ud800'", "float('nan')", "'a\\nb'", "b'\\xff'", "'\\u00b2'", "'x' * 70_000"]
)
async def test_odd_values_cost_only_their_own_call(pool: SandboxPool, value: str) -> None:
    source = f"def f(n):\n    return n if n != 1 else {value}\n"
    answers = await run_calls({"core.py": source.encode()}, CALLS, pool)
    assert [answers.results[0].value, answers.results[2].value] == [0, 2]


@given(st.text(max_size=40) | st.sampled_from(["[" * 50_000, "9" * 5000, "²", "{[]: 1}", "-" * 3000 + "1"]))
def test_no_text_is_more_than_no_value(text: str) -> None:
    found = plain_value(text)
    assert found is NOT_PLAIN or isinstance(found, object)


def _documented() -> Task:
    return Task("t", "documentation", "l", "", {"m.py": "def add(a, b):\n    return a + b\n"}, (), "documentation")


async def _shown(pool: SandboxPool, *examples: str) -> tuple[bool, ...]:
    groups = [read_examples("page", "\n".join(examples) + "\n")]
    files = {"m.py": b"def add(a, b):\n    return a + b\n"}
    outcome = await run_examples(_documented(), files, groups, "m", pool, 20.0)
    return outcome.good[0]


TRACEBACK = "Traceback (most recent call last):"
UNSUPPORTED = "TypeError: unsupported operand type(s) for +: 'int' and 'str'"


async def test_an_example_prints_what_it_computes(pool: SandboxPool) -> None:
    added = [">>> add(1, 1)", "2", ">>> x = add(1, 2)", ">>> x", "3"]
    assert await _shown(pool, *added, ">>> add(1, '')", TRACEBACK, UNSUPPORTED) == (True,) * 4


@pytest.mark.parametrize(
    "line",
    ['[0, 1, "3\\\\n", null]', "\"('3\\\\n', None)\"", "5", "[[1],2,3,4]", "[" * 500, "1 \"('3\\\\n', None)\""],
)
@pytest.mark.parametrize("leave", ["", "; os._exit(0)"])
async def test_an_example_can_not_speak_for_a_later_one(pool: SandboxPool, line: str, leave: str) -> None:
    forge = REACH.format(lines=(line,)) + "reach()\n"
    good = await _shown(pool, f">>> import os; exec({forge!r}){leave}", ">>> add(1, 1)", "3")
    assert not good[1]


async def test_an_example_that_loops_or_dies_leaves_the_others_without_output(pool: SandboxPool) -> None:
    assert await _shown(pool, ">>> add(1, 1)", "2", ">>> import os; os._exit(0)", ">>> add(1, 2)", "3") == (
        True,
        False,
        False,
    )


WORKFLOW = "on: push\njobs:\n  a:\n    runs-on: x\n{job}    steps:\n      - run: {run}\n"
ALIASES = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(12))
MERGED = "".join(f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{', '.join(['*' + chr(97 + n)] * 10)}]}}\n" for n in range(12))
HOSTILE_WORKFLOWS = {
    "needs a number": WORKFLOW.format(job="    needs: 5\n", run="true"),
    "needs nothing": WORKFLOW.format(job="    needs:\n", run="true"),
    "needs a table": WORKFLOW.format(job="    needs: {b: c}\n", run="true"),
    "needs itself": WORKFLOW.format(job="    needs: [a]\n", run="true"),
    "impossible date": WORKFLOW.format(job="    name: 2024-13-45\n", run="true"),
    "impossible time": WORKFLOW.format(job="    name: 2024-01-01 25:61:61\n", run="true"),
    "many digits": WORKFLOW.format(job=f"    name: {'9' * 5000}\n", run="true"),
    "tag int": WORKFLOW.format(job="    name: !!int zz\n", run="true"),
    "tag bool": WORKFLOW.format(job="    name: !!bool zz\n", run="true"),
    "tag timestamp": WORKFLOW.format(job="    name: !!timestamp zz\n", run="true"),
    "tag float": WORKFLOW.format(job="    name: !!float zz\n", run="true"),
    "tag of Python": WORKFLOW.format(job="    name: !!python/object/apply:os.getcwd []\n", run="true"),
    "tag set": WORKFLOW.format(job="    env: !!set {A}\n", run="true"),
    "product": WORKFLOW.format(job=f"    strategy: {{matrix: {{{', '.join(f'k{n}: {list(range(20))}' for n in range(9))}}}}}\n", run="true"),
    "matrix of tables": WORKFLOW.format(job="    strategy: {matrix: {k: [{a: b}]}}\n", run="true"),
    "long after filling": WORKFLOW.format(job=f"    env: {{A: '{'x' * 9000}'}}\n", run="${{ env.A }}" * 900),
    "longer after filling twice": f"env: {{A: '{'x' * 9000}'}}\n"
    + WORKFLOW.format(job=f"    env: {{B: '{'${{ env.A }}' * 900}'}}\n", run="${{ env.B }}" * 900),
    "open expressions": WORKFLOW.format(job="", run="'" + "${{" * 15_000 + "'"),
    "blanks in an expression": WORKFLOW.format(job="", run="'${{" + " " * 50_000 + "'"),
    "NUL": WORKFLOW.format(job="", run='"a\\0b"'),
    "half a surrogate": WORKFLOW.format(job="", run='"\\uD800"'),
    "variable without a name": WORKFLOW.format(job="    env: {'': x}\n", run="true"),
    "variable with =": WORKFLOW.format(job="    env: {'A=B': x}\n", run="true"),
    "aliases in jobs": f"on: push\na: &a [x]\n{ALIASES}jobs: *m\n",
    "aliases in a job": f"on: push\na: &a [x]\n{ALIASES}jobs: {{a: *m}}\n",
    "aliases in env": f"on: push\na: &a [x]\n{ALIASES}jobs: {{a: {{runs-on: x, env: {{A: *m}}, steps: [{{run: a}}]}}}}\n",
    "merged tables": f"on: push\na: &a {{x: y}}\n{MERGED}jobs: {{a: *m}}\n",
    "an alias of itself": "on: push\njobs: &a {b: *a}\n",
    "deep lists": "on: push\njobs: " + "[" * 30_000,
    "deep tables": "on: push\njobs: " + "{a: " * 15_000,
    "a chain of jobs": "on: push\njobs:\n" + "".join(f"  j{n}: {{runs-on: x, needs: j{n + 1}, steps: []}}\n" for n in range(900)),
    "many steps": "on: push\njobs: {a: {runs-on: x, steps: [" + "{uses: actions/checkout}, " * 2000 + "]}}",
    "many commands": WORKFLOW.format(job="", run="true") + "      - run: 'true'\n" * 60,
    "steps of numbers": "on: push\njobs: {a: {runs-on: x, steps: [1, 2]}}",
    "two documents": "on: push\n--- b\n--- c\n",
    "a list": "- on\n",
    "a key that is a list": "? [on]\n: push\n",
    "nothing": "",
    "too large": WORKFLOW.format(job="", run="true") + "#" * (1 << 16),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_WORKFLOWS)
def test_a_hostile_workflow_is_refused_and_never_expanded(name: str) -> None:
    with pytest.raises(WorkflowError, match="ci.yml"):
        commands_of(HOSTILE_WORKFLOWS[name], "ci.yml")


def test_scalars_of_a_workflow_are_the_texts_that_they_are_written_as() -> None:
    env = "    env: {V: 3.10, T: true, N: null, D: , O: 0o17, S: '1'}\n"
    (command,) = commands_of(WORKFLOW.format(job=env, run="echo ${{ env.V }}"), "ci.yml")
    assert command.env == {"V": "3.10", "T": "true", "N": "", "D": "", "O": "0o17", "S": "1"}
    assert command.script == "echo 3.10"


YAML_TEXT = st.text(st.sampled_from("on: push\njobsrune-[]{}&*!<>'\"#|%${} \t0189éx,?"), max_size=120)


@given(YAML_TEXT | YAML_TEXT.map(lambda text: WORKFLOW.format(job=f"    name: {text!r}\n", run=text)))
def test_any_text_is_a_workflow_or_is_refused(text: str) -> None:
    try:
        found = commands_of(text, "ci.yml")
    except WorkflowError:
        return
    assert 0 < len(found) <= MAX_COMMANDS and all(isinstance(command, Command) for command in found)


KEYS = ["name", "file", "nesting", "good", "testResults", "tests", "title", "Test", "Action", "x"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "kind", ["jest", "vitest", "mocha", "jasmine", "bun", "node", "go", "tap", "cargo", "unittest", "junit"]
)
@settings(max_examples=60)
@given(found=JSON, raw=st.binary(max_size=60))
def test_a_report_says_anything_and_is_a_report_or_none(kind: str, found: Any, raw: bytes) -> None:
    text = json.dumps(found).encode()
    for output in (
        text,
        text + b"\n" + raw,
        b"ok " + raw,
        b"<testsuite>" + raw,
        b'<?xml version="1.0" encoding="x-none"?><a/>',
    ):
        answer = ParentReport(1, 0.1, (), False, False, "", output, (output,))
        heard = verified_run(kind, answer, Prepared([], canaries=("canary",)))
        assert heard.objection, "no test that must fail was reported as failed"


def returning(value: int) -> int:
    return value + 1


def refusing(value: str) -> None:
    raise WorkflowError(value)


def turning() -> None:
    while True:
        pass


def growing() -> int:
    return len(bytearray(3 << 30))


def dying() -> None:
    os.abort()


async def test_a_bounded_function_returns_and_raises_as_if_it_were_called() -> None:
    assert await run_bounded(returning, 1) == 2
    with pytest.raises(WorkflowError, match="^no$"):
        await run_bounded(refusing, "no")
    assert await run_bounded_if_large(b"x" * 100, returning, 1) == 2


@pytest.mark.parametrize(("function", "why"), [(turning, "takes more than 1 s"), (growing, "MiB"), (dying, "signal 6")])
async def test_what_takes_too_much_ends_its_own_process_alone(
    monkeypatch: pytest.MonkeyPatch, function: Any, why: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    child = bounded_module._CHILD.replace("; child()", "; import etude.tasks.bounded as b; b.CPU_S = 1; child()")
    monkeypatch.setattr(bounded_module, "_CHILD", child)
    monkeypatch.setattr(bounded_module, "CPU_S", 1)
    with pytest.raises(LimitReached, match=why):
        await run_bounded(function)


async def test_the_time_that_imports_take_is_not_counted_as_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "import etude.tasks.bounded as b; b.CPU_S = 1; import time\nwhile time.process_time() < 1.5: pass\nchild()"
    monkeypatch.setattr(bounded_module, "_CHILD", bounded_module._CHILD.replace("; child()", f"; {busy}"))
    assert await run_bounded(returning, 1) == 2


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def test_a_machine_that_starts_no_process_is_at_fault_and_not_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*args: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    with pytest.raises(InfraError, match=r"no process can be started for \S*test_tasks_hostile_code.returning"):
        await run_bounded(returning, 1)


async def test_a_child_that_is_killed_or_can_not_import_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InfraError, match="signal 9"):
        await run_bounded(killed)
    monkeypatch.setattr(bounded_module, "_CHILD", "import no_such_module")
    with pytest.raises(InfraError, match="(?s)could not begin: status 1 .*no_such_module"):
        await run_bounded(returning, 1)


class Judge:
    """Raises `error` on files that hold a `bad` one, and on all where `always`."""

    def __init__(self, error: Exception, always: bool = False) -> None:
        self.error, self.always = error, always

    async def grade(self, task: Task, files: dict[str, bytes], pool: Any) -> Verdict:
        if self.always or "bad" in files:
            raise self.error
        return Verdict(0.5)


@pytest.mark.parametrize(
    "error", [ValueError("²"), RecursionError(), KeyError("x"), UserError("deep"), MemoryError(), UnicodeError("u")]
)
async def test_whatever_a_grader_raises_on_an_attempts_files_is_a_score_of_0_with_the_reason(error: Exception) -> None:
    verdict = await graded(Judge(error), _documented(), {"bad": b""}, None)  # type: ignore[arg-type]
    assert verdict.score == 0.0 and "grader documentation can't judge" in verdict.reason
    assert type(error).__name__ in verdict.reason or "deep" in verdict.reason


async def test_a_grader_that_fails_on_the_tasks_own_files_says_that_the_task_is_defective() -> None:
    with pytest.raises(
        Unsupported, match="task t: grader documentation fails on the task's own files .*etude tasks check"
    ):
        await graded(Judge(ValueError("x"), always=True), _documented(), {"bad": b""}, None)  # type: ignore[arg-type]


class Scorer:
    """A grader whose score is `bad` of files named so, and of all files if `always`."""

    def __init__(self, bad: float, always: bool = False) -> None:
        self.bad, self.always = bad, always

    async def grade(self, task: Task, files: dict[str, bytes], pool: Any) -> Verdict:
        return Verdict(self.bad if self.always or "bad" in files else 0.5)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.1, 1.5, "1", None])
async def test_a_score_that_is_no_number_from_0_to_1_never_leaves_a_grader(score: Any) -> None:
    verdict = await graded(Scorer(score), _documented(), {"bad": b""}, None)  # type: ignore[arg-type]
    assert verdict.score == 0.0 and "grader documentation can't judge" in verdict.reason
    with pytest.raises(Unsupported, match="task t: grader documentation fails on the task's own files"):
        await graded(Scorer(score, always=True), _documented(), {}, None)  # type: ignore[arg-type]
    assert (await graded(Scorer(score), _documented(), {}, None)).score == 0.5  # type: ignore[arg-type]


async def test_infrastructure_errors_of_a_grader_are_raised_as_they_are() -> None:
    error = SandboxDied("gone")
    with pytest.raises(InfraError, match="^gone$"):
        await graded(Judge(error), _documented(), {"bad": b""}, None)  # type: ignore[arg-type]


def test_examples_survive_the_way_to_another_process() -> None:
    group = read_examples("f", ">>> f()\n1\n")
    again: ExampleGroup = pickle.loads(pickle.dumps(group))
    assert isinstance(again.examples[0], doctest.Example) and again.examples[0].want == "1\n"
