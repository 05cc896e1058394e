"""Grader `script`: a task's own test script, over the agent's files in a fresh sandbox of the task's environment.

Harbor's rule: the script leaves a reward (`reward.py`); Terminal-Bench 1's: a parser reads what it printed
(`importers/logs/terminal_bench.py`), and all tests it names must have passed. Tests come into the sandbox now and not before; the agent's
processes died with the agent's sandbox, and what it wrote outside its working folder, rewards among it, is not carried over: a task that
is graded by that can't be solved here, and its reference shows it (`sound`). A separate verifier sees its declared artifacts alone.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import Network, SandboxSpec
from etude.tasks.bounded import LimitReached, run_bounded_if_large
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.graders import reward
from etude.tasks.graders.commands import Fit
from etude.tasks.task import Task, Verdict
from etude.tasks.test_logs.log import UnreadableLog
from etude.tasks.test_logs.terminal_bench import PARSERS

TESTS, SOLUTION, LOGS = "/tests", "/solution", "/logs"
OUTPUT_CHARS = 300
MAX_EXPORT_BYTES = 64 << 20
MAX_PRINTED_BYTES = 8 << 20


def in_its_image(spec: SandboxSpec, task: Task) -> SandboxSpec:
    """Where no suite names the image, the task does. Raises Unsupported."""
    if not spec.image:
        raise Unsupported(
            f"task {task.id} runs in an image of its own ({task.metadata['image']}), and none of the layer store is named for it: make it "
            f"with `etude sandbox image add` or `build`, and import the task with `--image '{task.id}=IMAGE'`"
        )
    return spec


class ScriptGrader:
    """`hidden`: tests and tests_binary (files of /tests), script (one of them), parser, env, hosts, artifacts, limit_s; the reference's
    solve, solve_binary (solve.sh among them) and solve_env. `below`: where /tests, /solution and /logs lie, in a sandbox whose root can't be
    written; scripts find it in the variable LOGS_DIR."""

    def __init__(self, fit: Fit = in_its_image, below: str = "") -> None:
        self.fit, self.below = fit, below

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        try:
            seen = _carried(task, files)
            sandbox = await self._fresh(task, pool, tuple(task.hidden["hosts"]), seen)
            try:
                await _only(sandbox, seen)
                score, tests, reason = await _scored(sandbox, task, self.below)
            finally:
                await sandbox.kill()
        except UserError as error:
            score, tests, reason = 0.0, {}, f"the tests could not be run: {error}"
        return Verdict(score, tests or {task.hidden["script"]: score >= 1}, reason, time.perf_counter() - start)

    async def solved(self, task: Task, pool: Machines) -> dict[str, bytes]:
        """The files after the task's own solution has run. Raises CandidateRejected."""
        if "solve.sh" not in task.hidden["solve"]:
            raise CandidateRejected("it has no solution/solve.sh, so whether it can be solved here is not known")
        sandbox = await self._fresh(task, pool)
        try:
            await _put(sandbox, f"{self.below}{SOLUTION}", task, "solve")
            limit_s = max(task.hidden["limit_s"], task.metadata["agent_limit_s"] or 0)
            script = _shell(f"{self.below}{SOLUTION}/solve.sh")
            ran = await sandbox.run(script, timeout_s=limit_s, env=task.hidden["solve_env"])
            if ran.rc != 0:
                raise CandidateRejected(f"its own solution ends with status {ran.rc}: {_end(ran.out + ran.err)}")
            return await sandbox.export(max_bytes=MAX_EXPORT_BYTES)
        except UserError as error:
            raise CandidateRejected(f"its own solution can't be run: {error}") from error
        finally:
            await sandbox.kill()

    async def untouched(self, task: Task, pool: Machines) -> dict[str, bytes]:
        """The files before anybody has worked on them."""
        sandbox = await self._fresh(task, pool)
        try:
            return await sandbox.export(max_bytes=MAX_EXPORT_BYTES)
        finally:
            await sandbox.kill()

    async def _fresh(
        self, task: Task, pool: Machines, hosts: tuple[str, ...] | None = None, files: dict[str, bytes] | None = None
    ) -> Disposable:
        """`hosts`: what it reaches, where that is not what the agent reached. `files`: by default those that the task begins with."""

        def adapt(spec: SandboxSpec) -> SandboxSpec:
            network = Network("allowlist", hosts=hosts) if hosts else Network() if hosts is not None else spec.network
            return replace(self.fit(spec, task), network=network)

        return await open_workspace(task, pool, SandboxSpec(), adapt, files)


async def sound(task: Task, grader: ScriptGrader, pool: Machines) -> Task:
    """The task, shown to be solvable here and not solved by doing nothing. Raises CandidateRejected, InfraError."""
    reference = await grader.grade(task, await grader.solved(task, pool), pool)
    nothing = await grader.grade(task, await grader.untouched(task, pool), pool)
    if not reference.passed or nothing.score:
        raise CandidateRejected(f"not sound: reference {reference.score} ({reference.reason}), nop {nothing.score}")
    return task


async def _scored(sandbox: Disposable, task: Task, below: str) -> tuple[float, dict[str, bool], str]:
    hidden, tests, logs = task.hidden, f"{below}{TESTS}", f"{below}{LOGS}"
    await _put(sandbox, tests, task, "tests")
    script = f"{tests}/{hidden['script']}"
    # A script says by its first line who runs it; Terminal-Bench 1 always takes bash.
    itself = not hidden["parser"] and hidden["tests"][hidden["script"]].startswith("#!")
    # A reward that was there before is no score.
    left = f"{below}{reward.FOLDER}"
    clean = f"rm -rf {left} && mkdir -p {left} {logs}/artifacts {logs}/agent && exec 2>&1 && "
    ran = await sandbox.run(
        clean + (f"exec {script}" if itself else _shell(script)),
        timeout_s=hidden["limit_s"],
        env={"TEST_DIR": tests, **({"LOGS_DIR": logs} if below else {}), **hidden["env"]},
        max_output_bytes=MAX_PRINTED_BYTES,
    )
    if ran.timed_out:
        return 0.0, {}, f"the tests took longer than {hidden['limit_s']:g} s"
    if hidden["parser"]:
        try:
            text = ran.out.decode("utf-8", "replace")
            return await run_bounded_if_large(ran.out, parse_reward, text, ran.truncated, hidden["parser"])
        except LimitReached as error:
            return 0.0, {}, str(error)
    try:
        found = await reward.reward_in(sandbox, left)
    except reward.NoReward as none:
        return 0.0, {}, f"{none} (status {ran.rc}): {_end(ran.out)}"
    return found.score, {}, "" if found.score >= 1 else f"reward {found.value:g}: {_end(ran.out)}"


def parse_reward(text: str, truncated: bool, parser: str) -> tuple[float, dict[str, bool], str]:
    """Score, tests by name, and why the score is 0."""
    if truncated:
        return 0.0, {}, f"the tests printed more than {MAX_PRINTED_BYTES >> 20} MiB, so their results can't be read"
    try:
        tests = PARSERS[parser](text)
    except UnreadableLog as error:
        return 0.0, {}, f"{error}: {_end(text.encode())}"
    except Exception as error:  # noqa: BLE001 - the log is the tested code's: whatever it holds, it is a log or it is none
        return 0.0, {}, f"what the tests printed can't be read ({type(error).__name__}: {str(error)[:200]})"
    if not tests:
        return 0.0, {}, f"no test is named in what the tests printed: {_end(text.encode())}"
    failed = [name for name, passed in tests.items() if not passed]
    return float(not failed), tests, f"failed {failed[0]} ({len(failed)} of {len(tests)})" if failed else ""


def _carried(task: Task, files: dict[str, bytes]) -> dict[str, bytes]:
    """What of the agent's files a separate verifier sees; any other sees all."""
    below = [path.removeprefix(task.metadata["workdir"]).strip("/") for path in task.hidden["artifacts"]]
    if not below:
        return files
    return {
        path: data for path, data in files.items() if any(not top or f"{path}/".startswith(f"{top}/") for top in below)
    }


async def _only(sandbox: Disposable, files: Mapping[str, bytes]) -> None:
    """What the image has in the folder and the agent removed goes."""
    for entry in await sandbox.list("."):
        if entry.kind == "file" and entry.path not in files:
            await sandbox.remove(entry.path)


async def _put(sandbox: Disposable, folder: str, task: Task, key: str) -> None:
    parts: dict[str, Any] = task.hidden
    files = {path: text.encode() for path, text in parts[key].items()}
    files |= {path: base64.b64decode(data) for path, data in parts[f"{key}_binary"].items()}
    for path, data in files.items():
        await sandbox.write(f"{folder}/{path}", data, mode=0o755 if path.endswith(".sh") else None)


def _shell(script: str) -> str:
    """By bash, or by sh in an image without it."""
    return f"if command -v bash >/dev/null 2>&1; then exec bash {script}; else exec sh {script}; fi"


def _end(output: bytes) -> str:
    return " ".join(output.decode("utf-8", "replace").split())[-OUTPUT_CHARS:]
