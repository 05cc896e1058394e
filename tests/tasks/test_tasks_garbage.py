"""Garbage to every grader: in the files that an agent leaves, and in everything that a sandbox full of graded code can send back.

Each grader is asked directly, without the boundary that turns exceptions into verdicts: what it does not foresee is a defect of its own.
"""

from __future__ import annotations

import ast
import json
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.graders import devops, documentation, mutants, refactor, script
from etude.tasks.registry import GRADERS
from etude.tasks.running import testrun
from etude.tasks.running.report import TestRun
from etude.tasks.solved import reference_files
from etude.tasks.task import Task

EXERCISES = {"outputs": "one-bug", "rename": "rename", "docstring": "docstring", "write-test": "write-test"}
SCRAPS = [
    "²", "\0", "\n", "NaN", "-1", "1e999", "null", "true", "[" * 2000, "{" * 500, "(" * 300, "9" * 5000, "\ud800", "\u202e", "${{", "}}", "&a [*a]",
    "!!int zz", "2024-13-45", ">>> 1", "```", "ok 1 - x", '{"a": 1}', "def f(:", "import os", "<a>", "é", "", " " * 500, "\\x00", "!ValueError",
    "needs: 5", "on: push", "jobs:", "# f(a)", "check('a b', 1)", "test_x (t.T) ... ok", "@@ -1 +1 @@", "\r", "\ufeff",
]  # fmt: skip


def scrap(dice: random.Random) -> bytes:
    """Noise, a handful of telling pieces, or both."""
    pieces = [dice.choice(SCRAPS) for _ in range(dice.randint(0, 6))]
    text = dice.choice(["", " ", "\n", ": "]).join(pieces).encode("utf-8", "surrogatepass")
    return text + dice.randbytes(dice.choice([0, 0, 3, 40]))


def mangled(dice: random.Random, data: bytes) -> bytes:
    """A real file with garbage somewhere in it, or garbage alone."""
    if dice.random() < 0.4:
        return scrap(dice)
    at, gone = dice.randint(0, len(data)), dice.choice([0, 1, 20])
    return data[:at] + scrap(dice) + data[at + gone :]


class GarbageSandbox:
    """Every command prints garbage, some of it in the frames that the grader reads, as code that reached its parent could."""

    def __init__(self, dice: random.Random, spec: SandboxSpec) -> None:
        self.dice, self.spec, self.id = dice, spec, "garbage"

    def _odd(self) -> None:
        if self.dice.random() < 0.1:
            raise UserError("the inside refuses")

    async def run(self, argv: Any, *, stdin: bytes = b"", **options: Any) -> ExecResult:
        self._odd()
        dice, nonce, out = self.dice, self._nonce(stdin), [scrap(self.dice)]
        for _ in range(dice.randint(0, 6)):
            word = dice.choice(["0", "1", "2", "-1", "²", "99999999999", "x"])
            shown = dice.choice([scrap(dice), repr(scrap(dice).decode("latin-1")).encode(), self._answer()])
            out.append(
                b"\n%s %s %s" % (nonce, word.encode(), shown) if dice.random() < 0.7 else b"\n%s %s" % (nonce, shown)
            )
        rc, signal = dice.choice([(0, None), (1, None), (137, 9), (-1, None), (139, 11)])
        timed_out, oom = dice.random() < 0.05, dice.random() < 0.05
        return ExecResult(rc, b"".join(out), scrap(dice), dice.random() < 0.1, timed_out, oom, signal)

    def _nonce(self, stdin: bytes) -> bytes:
        for read in (json.loads, ast.literal_eval):
            try:
                shown = read(stdin.decode())
                return str(shown["nonce"] if isinstance(shown, dict) else shown[0]).encode()
            except (ValueError, SyntaxError, KeyError, TypeError, IndexError):
                continue
        return b"nonce"

    def _answer(self) -> bytes:
        """What the supervising parent may honestly report of tested code: its fields are the parent's, their contents are not."""
        dice = self.dice
        answer = {
            "rc": dice.choice([0, 1, -9]),
            "seconds": 0.1,
            "events": [],
            "forged": False,
            "decided": False,
            "tail": "x",
            "output": "",
            "report": [],
        }
        return json.dumps({**answer, "tail": scrap(dice).hex()}).encode()

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        self._odd()
        return scrap(self.dice)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        self._odd()
        kind = self.dice.choice(["file", "dir", "symlink"])
        return [
            FileEntry(
                self.dice.choice(["reward.json", "reward.txt", "²", "a"]),
                kind,
                self.dice.choice([0, 5, 1 << 40]),
                0o644,
            )
        ]  # type: ignore[arg-type]

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        self._odd()
        return {"a": scrap(self.dice)}

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._odd()

    async def remove(self, path: str) -> None:
        self._odd()

    async def kill(self) -> None: ...


class GarbagePool:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    async def create(self, spec: SandboxSpec) -> Any:
        return GarbageSandbox(self.dice, spec)


@cache
def task_of(grader: str) -> Task:
    """A task that the grader judges, from the exercises or as small as it can be."""
    if grader in EXERCISES:
        source = ExerciseSource(ExerciseSettings())
        return source.task(source.ids("train", level=EXERCISES[grader])[0])
    module = 'def add(a, b):\n    """Add.\n\n    >>> add(1, 1)\n    2\n    """\n    return a + b\n'
    edit = [{"path": "m.py", "at": module.index("a + b"), "old": "a + b", "new": "a - b"}]
    hidden: dict[str, Any] = {
        "commands": {
            "files": {"t.py": "import m\n"},
            "removed": [],
            "tests": ["t.py"],
            "command": ["python3", "t.py"],
            "runner": "exit",
            "fail_to_pass": ["whole"],
            "pass_to_pass": [],
            "seconds": 0.1,
        },
        "mutants": {"path": "t.py", "module": "m.py", "broken": [edit], "same": [[]], "kill": 1, "seconds": 0.1},
        "documentation": {
            "form": "docstrings",
            "path": "m.py",
            "module": "m.py",
            "import": "m",
            "symbols": ["add"],
            "facts": {},
            "sources": [],
            "broken": [edit],
            "same": [[]],
            "kill": 1,
        },
        "review": {
            "path": "review.jsonl",
            "defects": [{"path": "m.py", "first": 2, "last": 3}],
            "recall": 0.5,
            "precision": 0.5,
        },
        "devops": {
            "scenarios": [
                {"name": "ci", "steps": [{"workflow": "ci.yml"}], "ok": True},
                {"name": "serves", "steps": [{"serve": "x", "port": 80, "path": "/"}], "ok": True},
            ],
            "seconds": 0.1,
        },
        "answer": {"path": "answer.txt", "answer": "node-7"},
        "script": {
            "tests": {"test.sh": "#!/bin/sh\n"},
            "tests_binary": {},
            "script": "test.sh",
            "parser": "pytest",
            "env": {},
            "hosts": [],
            "artifacts": [],
            "limit_s": 5.0,
        },
        "pytest": {"files": {}, "flags": [], "tests": ["t.py"], "fails": ["t::test_x"]},
    }
    if grader == "refactor":
        asked = {"operation": "rename", "module": "m", "old": "add", "new": "plus", "target": "m"}
        hidden["refactor"] = {**hidden["commands"], "refactor": asked, "modules": {"m.py": "m"}}
    files = {
        "m.py": module,
        "t.py": "import m\n",
        "ci.yml": "on: push\njobs: {a: {runs-on: x, steps: [{run: make}]}}\n",
    }
    files |= {
        "answer.txt": "node-6\n",
        "review.jsonl": '{"path": "m.py", "line": 2, "severity": "low", "text": "this adds the wrong way"}\n',
    }
    editable = {
        "editable": ["ci.yml", "m.py"],
        "package": "m",
        "version": "1",
        "tests": "tests",
        "workdir": "/workspace",
        "image": "i",
    }
    solution = {"m.py": module.replace("def add", "def plus").replace("add(1", "plus(1")}
    return Task("t", "debugging", "l", "", files, (), grader, hidden[grader], solution, metadata=editable)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers in this process: a process for each of thousands of answers would only take longer, and its limits have tests of their own."""

    async def here(function: Any, *args: Any) -> Any:
        return function(*args)

    async def where_large(data: bytes, function: Any, *args: Any) -> Any:
        return function(*args)

    for module in (devops, documentation, mutants, refactor):
        monkeypatch.setattr(module, "run_bounded", here)
    for module in (script, testrun):
        monkeypatch.setattr(module, "run_bounded_if_large", where_large)
    monkeypatch.setattr("etude.tasks.real.grader.with_pytest", lambda spec, cache: spec)
    monkeypatch.setattr("etude.tasks.running.channels.exit_status.ExitChannel.control", lambda *args: {})


async def escapes_of(name: str, count: int) -> Counter[str]:
    """Exceptions that a grader raised on `count` answers, but for infrastructure errors."""
    dice, task, found = random.Random(name), task_of(name), Counter[str]()
    grader: Any = GRADERS[name]
    if name == "script":
        grader = script.ScriptGrader(lambda spec, task: spec)
    if name == "pytest":
        grader = type(grader)()
        grader._release["m 1 t.py"] = TestRun(frozenset({"t::test_x"}), frozenset(), 0, 0.1)
    for _ in range(count):
        files = {
            path: mangled(dice, data) if dice.random() < 0.7 else data for path, data in reference_files(task).items()
        }
        files |= (
            {scrap(dice).decode("utf-8", "surrogateescape").replace("\0", "") or "x": scrap(dice)}
            if dice.random() < 0.3
            else {}
        )
        try:
            verdict = await grader.grade(task, files, GarbagePool(dice))
            assert 0.0 <= verdict.score <= 1.0
        except InfraError:
            pass
        except Exception as error:  # noqa: BLE001 - these are counted
            found[f"{type(error).__name__}: {str(error)[:100]}"] += 1
    return found


@pytest.mark.parametrize("name", sorted(GRADERS))
async def test_no_garbage_escapes_a_grader(one_process: None, name: str) -> None:
    assert await escapes_of(name, 150) == Counter()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(GRADERS))
async def test_none_of_ten_thousand_garbage_answers_escapes_a_grader(one_process: None, name: str) -> None:
    assert await escapes_of(name, 10_000) == Counter()


def test_every_grader_has_a_task_here() -> None:
    assert {replace(task_of(name)).grader for name in GRADERS} == set(GRADERS)
