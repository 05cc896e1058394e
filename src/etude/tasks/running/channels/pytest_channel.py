"""pytest: the pinned one, or the environment's own; results come through a pipe from a plugin that is loaded before the project.

Five canaries lie between the chosen files, in their folder and under names drawn for each run: tests that must fail by an assertion, by
an assertion of unittest, by an exception, by an exception that does not come, and one that must pass. They are the runner's own test of
itself: code that turns failures into passes wholesale turns them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from etude.tasks.errors import TaskError
from etude.tasks.running.channel import INSIDE, ParentReport, Prepared, Tests, VerifiedRun, check_canaries, fill_command
from etude.tasks.running.inside.etude_supervise import name_of
from etude.tasks.running.parsers.case import Case, Outcome, test_run
from etude.tasks.running.pytest_tools import PYTEST_FLAGS, SOURCE_INSIDE

FIRST = "def test_{0}_a():\n    left = [1]\n    assert len(left) == 2\n"
MIDDLE = (
    "import unittest\n\nimport pytest\n\n\nclass Test{0}(unittest.TestCase):\n    def test_{0}_b(self):\n        self.assertEqual(1, 2)\n\n\n"
    "def test_{0}_c():\n    with pytest.raises(KeyError):\n        dict(a=1)['a']\n"
)
LAST = "def test_{0}_d():\n    raise ValueError('canary')\n\n\ndef test_{0}_e():\n    assert not []\n"
# Each run takes the tests in the same order, whole, and leaves nothing behind.
FLAGS = (*PYTEST_FLAGS, "-p", "no:randomly", "-o", "addopts=")
_OUTCOMES: dict[str, Outcome] = {"p": "passed", "f": "failed", "s": "skipped", "x": "xfailed"}
_FATAL = {
    2: "it was interrupted, or test files could not be collected",
    4: "it was called wrongly",
    5: "it found no test",
}


class PytestChannel:
    def prepare(self, tests: Tests, files: Mapping[str, bytes], nonce: str, workdir: str) -> Prepared:
        folder = PurePosixPath(tests.files[0]).parent if tests.files else PurePosixPath()
        folder = folder if not tests.files or tests.files[0].endswith(".py") else PurePosixPath(tests.files[0])
        first, middle, last = (str(folder / f"test_{nonce}{letter}.py") for letter in "abc")
        half = (len(tests.files) + 1) // 2
        chosen = [first, *tests.files[:half], middle, *tests.files[half:], last] if tests.files else []
        python, flags = interpreter(tests.command)
        later = [workdir, SOURCE_INSIDE]
        argv = [python, f"{INSIDE}/etude_launch.py", "{events}", "{key}", *later, "--", *flags, *FLAGS, *chosen]
        planted = {first: FIRST, middle: MIDDLE, last: LAST}
        return Prepared(
            argv,
            {path: text.format(nonce).encode() for path, text in planted.items()},
            {"PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            canaries=tuple(f"::test_{nonce}_{letter}" for letter in "abcd"),
            passing=(f"::test_{nonce}_e",),
            watched=True,
            needed=tests.needed,
        )

    def hear(self, answer: ParentReport, prepared: Prepared, workdir: str) -> VerifiedRun:
        cases, universal, tampering, end = [], [], [], None
        for line in answer.events:
            kind, *words = line.split(" ")
            if kind == "t":
                cases.append(_case(_text(words[2]), words[1], float(words[0])))
            elif kind == "u":
                universal.append(_text(words[0]))
            elif kind == "x":
                tampering.append(_text(words[0]))
            elif kind == "e":
                end = int(words[0])
        run, lying = check_canaries(test_run(cases, answer.rc, answer.seconds), prepared)
        if answer.decided:
            return VerifiedRun(run)  # canaries speak for passes, and this run can't have all that are needed
        if answer.forged:
            return VerifiedRun(run, "the results were written by somebody else than the runner")
        if tampering:
            return VerifiedRun(run, f"the runner was tampered with: {tampering[0]}")
        if end is None or end != answer.rc:
            return VerifiedRun(run, f"pytest did not end as it does (status {answer.rc})")
        if answer.rc in _FATAL:
            return VerifiedRun(run, f"pytest ended with status {answer.rc}: {_FATAL[answer.rc]}")
        return VerifiedRun(run, lying, tuple(universal))


def interpreter(command: tuple[str, ...]) -> tuple[str, list[str]]:
    """The Python that runs pytest, and the flags it is given, of an environment's own command. Raises TaskError."""
    words = [word for word in fill_command(command, [])]
    if not words:
        return "python3", []
    name = PurePosixPath(words[0]).name
    if name in ("pytest", "py.test"):
        folder = words[0].rpartition("/")[0]
        return (f"{folder}/python" if folder else "python3"), words[1:]
    if re.fullmatch(r"python[\d.]*", name) and words[1:3] == ["-m", "pytest"]:
        return words[0], words[3:]
    raise TaskError(
        f"runner pytest needs a command that is pytest (`python -m pytest …` or `pytest …`), this is {' '.join(words)!r}: "
        "name another runner (junit with {report}, or exit)"
    )


def _text(hex_text: str) -> str:
    return bytes.fromhex(hex_text).decode("utf-8", "replace")


def _case(node: str, outcome: str, seconds: float) -> Case:
    return Case(name_of(node), _OUTCOMES[outcome], node.partition("[")[0].partition("::")[0], seconds)
