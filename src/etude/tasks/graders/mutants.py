"""Grader `mutants`: tests that an agent wrote pass on the right code, three times, and fail on hidden mutants of it.

What it catches, and by what:

- tests that fail always, or by lot: they run three times on the right code, and every one must pass every time
- empty tests, tests that import and call nothing: no mutant that an import alone reveals is among the hidden ones
- tests that know the sources (their hash, bytecode, lines): they run on variants that behave the same and must pass there
- a copy of the module in the tests, to compare with: too many of its lines, or a long string without a space, end it
- edited sources: the request forbids them, and the tests run over the base's sources
- tests that turn failures of others into passes: the canary of `running.testrun`

What remains open: a copy of the module that is rewritten line by line. Score 1 if at least `kill` mutants fail, else 0; which of
them did is in `tests`, so that a share can be computed.
"""

from __future__ import annotations

import ast
import asyncio
import re
import time
from collections.abc import Collection, Mapping, Sequence

from etude.core.bounded_python import parse_python
from etude.sandbox.protocol import Machines
from etude.tasks.bounded import LimitReached, run_bounded
from etude.tasks.content import same_content
from etude.tasks.environment.environment import TestPlan, environment_of
from etude.tasks.graders.commands import keep_spec, machine
from etude.tasks.graders.edits import Edit, apply_edits, encode_files
from etude.tasks.graders.judged import MAX_FILE_BYTES
from etude.tasks.restore import text_of
from etude.tasks.running.testrun import RunReport, Tests, run_tests
from etude.tasks.task import Task, Verdict

# How some test files of a task are run: by the test plan of its environment, else by the pinned pytest.


def tests_of(task: Task, files: Sequence[str], needed: Collection[str] = ()) -> Tests:
    environment = environment_of(task.metadata)
    plan = environment.tests if environment is not None else TestPlan()
    return Tests(tuple(files), plan.command, plan.runner, frozenset(needed))


NAME = "mutants"
TIMES = 3
FEWEST_S, TIMES_S = 30.0, 10.0  # ten times what the project's own tests of the module take, half a minute at least
TOGETHER = 2  # runs at a time: attempts share the machine
MAX_COPIED = 0.25  # of the module's telling lines; tests written by people repeat under 5% of them
TELLING_CHARS = 12
# Lines that say what is imported, or are comments, stand in tests and modules alike.
_COMMON = re.compile(r"#|//|/?\*|import |from |(var|let|const) .*\brequire\(")
_CODE = re.compile(r"\.(py|[cm]?[jt]sx?)$")
MAX_SOLID_CHARS = 2000


class MutantsGrader:
    """`hidden`: path (of the tests to write), module (path), broken and same (lists of edits), kill, seconds."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        names = ["right code", "same behaviour", *(f"mutant {n}" for n in range(len(task.hidden["broken"])))]
        found = dict.fromkeys(names, False)
        try:
            reason = await run_bounded(objection, task, files)
        except LimitReached as error:
            reason = str(error)
        reason = reason or await self._judged(task, files, pool, found)
        return Verdict(float(not reason), found, reason, time.perf_counter() - start)

    async def _judged(self, task: Task, files: dict[str, bytes], pool: Machines, found: dict[str, bool]) -> str:
        hidden = task.hidden
        runs = _Runs(task, files, pool)
        first = await runs.once(())
        if complaint := _unhealthy(first):
            return f"on the right code: {complaint}"
        again = await runs.each([()] * (TIMES - 1))
        if any(_unhealthy(ran) or ran.run.passed != first.run.passed for ran in again):
            return "the tests come out differently from run to run on the right code"
        found["right code"] = True
        for ran in await runs.each(hidden["same"]):
            if _unhealthy(ran) or ran.run.passed != first.run.passed:
                return "the tests fail on code that behaves the same: they test how it is written, not what it does"
        found["same behaviour"] = True
        caught = 0
        broken = hidden["broken"]
        for at in range(0, len(broken), TOGETHER):
            for number, ran in enumerate(await runs.each(broken[at : at + TOGETHER], first.run.passed), at):
                found[f"mutant {number}"] = bool(first.run.passed - ran.run.passed)
                caught += found[f"mutant {number}"]
            if caught + len(broken) - at - TOGETHER < hidden["kill"]:
                break  # it can't be reached any more
        return (
            "" if caught >= hidden["kill"] else f"caught {caught} of {len(broken)} mutants, {hidden['kill']} are asked"
        )


class _Runs:
    """The agent's tests over variants of the base's sources."""

    def __init__(self, task: Task, files: Mapping[str, bytes], pool: Machines) -> None:
        self.task, self.pool = task, pool
        self.path = task.hidden["path"]
        self.tests = {self.path: files[self.path]}
        self.limit_s = max(FEWEST_S, TIMES_S * float(task.hidden["seconds"]))

    async def once(self, edits: Sequence[Edit], needed: Collection[str] = ()) -> RunReport:
        graded = encode_files(apply_edits(self.task.files, edits)) | self.tests
        fresh = machine(self.task, self.pool, keep_spec)
        return await run_tests(tests_of(self.task, (self.path,), needed), graded, fresh, self.limit_s)

    async def each(self, variants: Sequence[Sequence[Edit]], needed: Collection[str] = ()) -> list[RunReport]:
        """`needed`: tests of which the first that does not pass tells all of a variant."""
        found: list[RunReport] = []
        for at in range(0, len(variants), TOGETHER):
            found += await asyncio.gather(*(self.once(edits, needed) for edits in variants[at : at + TOGETHER]))
        return found


def objection(task: Task, files: Mapping[str, bytes]) -> str:
    """What can be said against the tests before they run; empty if nothing."""
    path = task.hidden["path"]
    text = text_of(files.get(path))
    if text is None or path not in files:
        return f"{path} is missing, or no UTF-8 text"
    if len(files[path]) > MAX_FILE_BYTES:
        return f"{path} has {len(files[path])} bytes, {MAX_FILE_BYTES} at most are graded"
    for known, before in task.files.items():
        if known != path and _CODE.search(known) and not same_content(before, files.get(known)):
            return f"{known} was changed or removed: only {path} may be written"
    if (share := copied_share(text, task.files[task.hidden["module"]])) > MAX_COPIED:
        return (
            f"{path} repeats {share:.0%} of the lines of {task.hidden['module']}: it is compared with a copy of itself"
        )
    if solid(path, text):
        return f"{path} holds a string of more than {MAX_SOLID_CHARS} characters without a space"
    return ""


def copied_share(tests: str, module: str) -> float:
    """The share of the module's telling lines that stand in the tests, be it as text."""
    lines = {line.strip() for line in module.splitlines()}
    telling = {line for line in lines if len(line) >= TELLING_CHARS and not _COMMON.match(line)}
    there = {line.strip().strip("'\"") for line in tests.replace("\\n", "\n").splitlines()}
    return len(telling & there) / len(telling) if telling else 0.0


def solid(path: str, text: str) -> bool:
    """Whether a string constant may be code in disguise (base64, hexadecimal). In JavaScript this many letters of any kind are suspect: no
    one writes a word like that."""
    if not path.endswith(".py"):
        return max(map(len, text.split()), default=0) > MAX_SOLID_CHARS
    try:
        nodes = list(ast.walk(parse_python(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # it will not run either
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)]
    return any(len(value) > MAX_SOLID_CHARS and len(value.split()) == 1 for value in values)


def _unhealthy(ran: RunReport) -> str:
    if ran.run.timed_out:
        return f"the tests took longer than {ran.run.seconds:.0f} s"
    if not ran.honest:
        return ran.objection
    if not ran.run.passed:
        return f"no test passed (status {ran.run.rc})"
    return f"{len(ran.run.failed)} tests fail, {min(ran.run.failed)} first" if ran.run.failed else ""
