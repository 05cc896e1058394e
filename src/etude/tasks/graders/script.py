"""Grader `script`: a task's own test script, over the agent's files in a fresh sandbox of the task's image.

Harbor's rule: the script writes its score to /logs/verifier/reward.json (a number, or an object with `reward`) or reward.txt;
Terminal-Bench's: its exit status. Tests come into the sandbox now and not before. What an agent changed outside its working
folder is not carried over: a task that is graded by it can't be solved here, and its reference shows that (`sound`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.graders.commands import Fit, unfitted
from etude.tasks.task import Task, Verdict
from etude.tasks.validation.proof import LeftOut

TESTS, REWARDS = "/tests", "/logs/verifier"
SAID_CHARS = 300
MAX_EXPORT_BYTES = 64 << 20


class ScriptGrader:
    """`hidden`: tests (files of /tests), script (one of them), solve (the reference's files, solve.sh among them), limit_s."""

    def __init__(self, fit: Fit = unfitted) -> None:
        self.fit = fit

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        sandbox = await pool.create(self.fit(SandboxSpec(files=files), task))
        try:
            await _only(sandbox, files)
            score, reason = await _scored(sandbox, task)
        except UserError as error:
            score, reason = 0.0, f"the tests could not be run: {error}"
        finally:
            await sandbox.kill()
        return Verdict(score, {task.hidden["script"]: score >= 1}, reason, time.perf_counter() - start)

    async def solved(self, task: Task, pool: Machines) -> dict[str, bytes]:
        """The files after the task's own solution has run. Raises LeftOut."""
        if "solve.sh" not in task.hidden["solve"]:
            raise LeftOut("it has no solution/solve.sh, so whether it can be solved here is not known")
        sandbox = await pool.create(self.fit(SandboxSpec(), task))
        try:
            await _put(sandbox, "/solution", task.hidden["solve"])
            ran = await sandbox.run(["sh", "/solution/solve.sh"], timeout_s=task.hidden["limit_s"])
            if ran.rc != 0:
                raise LeftOut(f"its own solution ends with status {ran.rc}: {_end(ran.out + ran.err)}")
            return await sandbox.export(max_bytes=MAX_EXPORT_BYTES)
        except UserError as error:
            raise LeftOut(f"its own solution can't be run: {error}") from error
        finally:
            await sandbox.kill()


async def sound(task: Task, grader: ScriptGrader, pool: Machines) -> Task:
    """The task, shown to be solvable here and not solved by doing nothing. Raises LeftOut, InfraError."""
    reference = await grader.grade(task, await grader.solved(task, pool), pool)
    untouched = await pool.create(grader.fit(SandboxSpec(), task))
    try:
        before = await untouched.export(max_bytes=MAX_EXPORT_BYTES)
    finally:
        await untouched.kill()
    nothing = await grader.grade(task, before, pool)
    if not reference.passed or nothing.score:
        raise LeftOut(f"not sound: reference {reference.score} ({reference.reason}), nop {nothing.score}")
    return task


async def _scored(sandbox: Disposable, task: Task) -> tuple[float, str]:
    await _put(sandbox, TESTS, task.hidden["tests"])
    script = f"{TESTS}/{task.hidden['script']}"
    # A reward that was there before is nobody's score; a shell finds what a script without its mode is written for.
    head = task.hidden["tests"][task.hidden["script"]].partition("\n")[0]
    shell = "bash" if "bash" in head else "sh"
    command = f"rm -rf {REWARDS} && mkdir -p {REWARDS} && TEST_DIR={TESTS} exec {shell} {script}"
    ran = await sandbox.run(command, timeout_s=task.hidden["limit_s"])
    if ran.timed_out:
        return 0.0, f"the tests took longer than {task.hidden['limit_s']:g} s"
    said = _end(ran.out + ran.err)
    if task.metadata["format"] == "terminal-bench":
        return float(ran.rc == 0), "" if ran.rc == 0 else f"status {ran.rc}: {said}"
    score = await _reward(sandbox)
    if score is None:
        return 0.0, f"the tests left no reward in {REWARDS} (status {ran.rc}): {said}"
    return score, "" if score >= 1 else f"reward {score:g}: {said}"


async def _reward(sandbox: Disposable) -> float | None:
    for name in ("reward.json", "reward.txt"):
        try:
            text = (await sandbox.read(f"{REWARDS}/{name}")).decode("utf-8", "replace")
        except UserError:
            continue  # the other form may be there
        try:
            value = json.loads(text)
        except ValueError:
            return None
        value = value.get("reward") if isinstance(value, dict) else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return min(1.0, max(0.0, float(value)))
    return None


async def _only(sandbox: Disposable, files: Mapping[str, bytes]) -> None:
    """What the image has in the folder and the agent removed goes."""
    for entry in await sandbox.list("."):
        if entry.kind == "file" and entry.path not in files:
            await sandbox.remove(entry.path)


async def _put(sandbox: Disposable, folder: str, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        await sandbox.write(f"{folder}/{path}", text.encode(), mode=0o755 if path.endswith(".sh") else None)


def _end(said: bytes) -> str:
    return " ".join(said.decode("utf-8", "replace").split())[-SAID_CHARS:]
