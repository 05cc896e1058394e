"""Grader `write-test`: the added checks hold on the right code and catch hidden mutants.

An added test is taken as data, `check("module function", want, *args)` with literal arguments, never run as code: what a
test could do besides testing (read the sources, look for mutants, print) has no way in. The calls run in a sandbox all
the same, for the arguments are the agent's.
"""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from typing import Any

from etude.core.bounded_python import parse_expression
from etude.sandbox.protocol import Machines
from etude.tasks.calls import Call, run_calls
from etude.tasks.restore import restore_files, text_of
from etude.tasks.task import Task, Verdict

# One good check suffices; a hundred lines of guesses would cost the grader time.
MAX_CHECKS = 8
MAX_LINE_CHARS = 200


@dataclass(frozen=True)
class AddedAssertion:
    """One added line."""

    function: str
    want: Any
    args: list[Any]


class WriteTestGrader:
    """`hidden`: `path` of the tests, `module`, `function`, `reference` source, `mutants` sources, `kill`: how many must be caught."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        hidden = task.hidden
        path = hidden["path"]
        checks = added_checks(task.files[path], text_of(restore_files(task, files).get(path)) or "", hidden["module"])
        names = ["holds on the right code", *(f"mutant {i}" for i in range(len(hidden["mutants"])))]
        if checks is None or not any(check.function == hidden["function"] for check in checks):
            reason = "no check of the function was added" if checks is not None else "other changes than added checks"
            return Verdict(0.0, dict.fromkeys(names, False), reason, time.perf_counter() - start)
        checks = [check for check in checks if check.function == hidden["function"]]
        right, *caught = await self._outcomes(hidden, checks, pool)
        passed = right and sum(caught) >= hidden["kill"]
        tests = dict(zip(names, [right, *(right and one for one in caught)], strict=True))
        reason = "" if passed else f"holds on the right code: {right}, caught {sum(caught)} of {len(caught)}"
        return Verdict(float(passed), tests, reason, time.perf_counter() - start)

    async def _outcomes(self, hidden: dict[str, Any], checks: list[AddedAssertion], pool: Machines) -> list[bool]:
        """Whether all checks hold on the reference, then for each mutant whether a check caught it.

        Only an answer catches a mutant: arguments that take the run to its time limit leave the later calls unanswered, and
        say nothing about them. No mutant runs away on its own (`Instance.revealing` draws none that does).
        """
        sources = [hidden["reference"], *hidden["mutants"]]
        files = {f"code{number}.py": source.encode() for number, source in enumerate(sources)}
        calls = [Call(f"code{n}", hidden["function"], check.args) for n in range(len(sources)) for check in checks]
        results = (await run_calls(files, calls, pool)).results
        wants = [check.want for check in checks]
        width = len(checks)
        rows = [results[row * width : (row + 1) * width] for row in range(len(sources))]
        right = all(result.equals(want) for result, want in zip(rows[0], wants, strict=True))
        caught = [any(r.ended and not r.equals(want) for r, want in zip(row, wants, strict=True)) for row in rows[1:]]
        return [right, *caught]


def added_checks(before: str, after: str, module: str) -> list[AddedAssertion] | None:
    """The checks in lines that were added to `before`; None if a line was changed, removed, or is no literal check."""
    remaining = iter(before.splitlines())
    expected = next(remaining, None)
    added: list[AddedAssertion] = []
    for line in after.splitlines():
        if line == expected:
            expected = next(remaining, None)
        elif line.strip():
            check = _check(line, module)
            if check is None or len(added) == MAX_CHECKS:
                return None
            added.append(check)
    return added if expected is None else None


def _check(line: str, module: str) -> AddedAssertion | None:
    if len(line) > MAX_LINE_CHARS:
        return None
    try:
        call = parse_expression(line)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "check":
            return None
        place, want, *args = [ast.literal_eval(arg) for arg in call.args]
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    words = place.split() if isinstance(place, str) else []
    if call.keywords or len(words) != 2 or words[0] != module:
        return None
    return AddedAssertion(words[1], want, args)
