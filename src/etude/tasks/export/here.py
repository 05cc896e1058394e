"""Grades the folder next to it, inside an exported task's own machine: what `tests/test.sh` starts, with the modules it needs below `tests/lib`.

    here.main([TESTS, WORKDIR, LOGS])      writes LOGS/reward.json and LOGS/verdict.json; ends with 0 if there is a verdict

The same code that decides in training: tests and settings of the base over the agent's files, one run under the parent of `running/inside`,
only the expected names. What both the machine and the code could have caused has no control run here, and counts against the attempt.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.sandbox.spec import ExecResult, SandboxSpec
from etude.tasks.content import files_below, read_file, write_file
from etude.tasks.graders.judged import MAX_FILE_BYTES, AttemptJudgement, judge_hidden_tests, limit_s, tests_to_grade
from etude.tasks.protected import is_protected
from etude.tasks.running.channel import INSIDE
from etude.tasks.running.testrun import run_tests

KEPT = ("node_modules", ".git", ".venv")  # of the environment, at the top of the workdir: not an attempt's files
OWN_INSIDE = Path(__file__).resolve().parent.parent / "running" / "inside"


class Here:
    """This machine as a sandbox: apart from its files, a run of tests needs only `run`."""

    id = "here"

    def __init__(self, workdir: Path) -> None:
        self.workdir, self.spec = workdir, SandboxSpec(env=dict(os.environ))
        self._planted: set[str] = set()

    async def fresh(self, files: dict[str, bytes]) -> Any:
        """The files over the workdir; those of an earlier run that are not among them go."""
        for path in self._planted - set(files):
            (self.workdir / path).unlink(missing_ok=True)
        for path, data in files.items():
            place = self.workdir / path
            if (place.is_symlink() or place.is_file()) and read_file(place) == data:
                continue
            clear_path(self.workdir, path)
            write_file(self.workdir, path, data)
            self._planted.add(path)
        return self

    async def run(self, argv: list[str], *, stdin: bytes = b"", timeout_s: float = 10.0, **_: Any) -> ExecResult:
        """What is bound into a sandbox elsewhere lies next to this module here."""
        words = [sys.executable, *argv[1:]] if argv[:1] == ["python3"] else argv
        words = [word.replace(INSIDE, str(OWN_INSIDE)) for word in words]
        start = time.perf_counter()
        child = subprocess.Popen(
            words, stdin=-1, stdout=-1, stderr=-1, cwd=self.workdir, start_new_session=True, env=dict(os.environ)
        )
        try:
            out, err = child.communicate(stdin.replace(INSIDE.encode(), str(OWN_INSIDE).encode()), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return ExecResult(137, b"", b"", timed_out=True, duration_s=time.perf_counter() - start)
        rc = child.returncode
        return ExecResult(rc if rc >= 0 else 128 - rc, out, err, duration_s=time.perf_counter() - start)

    async def kill(self) -> None:
        """The machine is its harness' to end."""


def restore_base(workdir: Path, tree: Mapping[str, bytes], removed: list[str]) -> None:
    """The attempt's tests, settings, links and what is too large go; those of the base come back."""
    for folder, folders, names in os.walk(workdir):
        top = Path(folder) == workdir
        folders[:] = [name for name in folders if not (top and name in KEPT)]
        for name in [*folders, *names]:
            place = Path(folder) / name
            path = place.relative_to(workdir).as_posix()
            if top and name in KEPT:
                continue
            if place.is_symlink() or (
                place.is_file() and (is_protected(path) or place.stat().st_size > MAX_FILE_BYTES)
            ):
                place.unlink()
    for path in removed:
        clear_path(workdir, path)
    for path, data in tree.items():
        clear_path(workdir, path)
        (workdir / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(workdir, path, data)


def clear_path(workdir: Path, path: str) -> None:
    """Removes what is at the path, and files or links where folders on the way to it must be."""
    place = workdir
    for part in Path(path).parts[:-1]:
        place = place / part
        if place.is_symlink() or place.is_file():
            place.unlink()
    place = workdir / path
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)


def grade_attempt(tests: Path, workdir: Path) -> AttemptJudgement:
    """By `tests/hidden.json`, the task's hidden part, and `tests/tree`, the base's protected files under the reference's tests."""
    hidden = json.loads((tests / "hidden.json").read_bytes())
    tree = {path: read_file(tests / "tree" / path) for path in files_below(tests / "tree")}
    restore_base(workdir, tree, hidden["removed"])
    plan = tests_to_grade(hidden)
    own = {path: (workdir / path).read_bytes() for path in plan.files if (workdir / path).is_file()}
    ran = asyncio.run(run_tests(plan, {**own, **tree}, Here(workdir).fresh, limit_s(hidden["seconds"])))
    return judge_hidden_tests(hidden, ran)


def main(arguments: list[str]) -> int:
    tests, workdir, logs = map(Path, arguments)
    outcome = grade_attempt(tests, workdir)
    reward = float(not outcome.reason)
    passed = sum(outcome.tests.values())
    report = {"reward": reward, "reason": outcome.reason, "tests": outcome.tests}
    for name, document in (
        ("verdict.json", report),
        ("reward.json", {"reward": reward, "tests_passed": passed, "tests": len(outcome.tests)}),
    ):
        if (logs / name).is_symlink() or (logs / name).exists():
            (logs / name).unlink()
        (logs / name).write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")
    print(outcome.reason or f"{passed} of {len(outcome.tests)} expected tests passed")
    return 0
