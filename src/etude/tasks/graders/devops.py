"""Grader `devops`: what builds, tests, checks and serves a project is run, on the project as it is and on what it must notice.

The agent repairs files that run things (Makefile, script, workflow, service): those are taken from it, everything else is the base's.
Each scenario is a fresh sandbox: files laid over the tree, steps, and whether they must end well. What it catches:

- targets that do nothing (`test: true`): a scenario breaks the code, and the same command must fail there
- copied or canned outputs: `{nonce}` in a scenario's files and in what it must say is drawn again for each grading
- a check that fails always: a scenario that must end well
- steps left out of a workflow: jobs run as written (`workflow.py`), on good and on bad code
- a service that answers without the project: its answer must hold what the scenario put into the project

Steps: {"run": shell}, {"workflow": path}, {"serve": shell, "port", "path"}. `says` must stand in the output of the last step. `edits` are
against the base, and are what the scenario breaks. What remains open: code under test that knows it is run for a grade.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import ExecResult
from etude.tasks.bounded import LimitReached, run_bounded
from etude.tasks.content import laid_over
from etude.tasks.graders.commands import keep_spec, machine
from etude.tasks.graders.edits import apply_edits, encode_files
from etude.tasks.graders.workflow import WorkflowError, commands_of
from etude.tasks.restore import editable, restore_files, text_of
from etude.tasks.task import Task, Verdict

NAME = "devops"
TOGETHER = 2
FEWEST_S, TIMES_S = 30.0, 10.0
OUTPUT_CHARS = 300
NONCE = "{nonce}"
SERVES_WITHIN_S = 15.0

PROBE = """
import os, sys, time, urllib.request
address, within_s, pid = sys.argv[1], float(sys.argv[2]), sys.argv[3]
until = time.monotonic() + within_s
while True:
    alive = os.path.exists("/proc/" + pid)
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            print(answer.status, answer.read(65536).decode("utf-8", "replace"))
        break
    except OSError as error:
        if not alive:  # it may have left a child of its own that still comes up
            until = min(until, time.monotonic() + 1)
        if time.monotonic() > until or getattr(error, "code", None):
            sys.exit("no answer: %s" % error)
        time.sleep(0.1)
"""


@dataclass(frozen=True)
class CheckStepResult:
    """How a step ended."""

    good: bool
    output: str


class DevopsGrader:
    """`hidden`: scenarios [{name, files, edits, steps, ok, says}], seconds; `metadata.editable`: what the agent repairs."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        scenarios = task.hidden["scenarios"]
        found = dict.fromkeys((one["name"] for one in scenarios), False)
        reason = ""
        for at in range(0, len(scenarios), TOGETHER):
            batch = scenarios[at : at + TOGETHER]
            objections = await asyncio.gather(*(objection(task, files, one, pool) for one in batch))
            found.update({one["name"]: not problem for one, problem in zip(batch, objections, strict=True)})
            reason = next(filter(None, objections), "")
            if reason:
                break
        return Verdict(float(not reason), found, reason, time.perf_counter() - start)


async def objection(task: Task, files: dict[str, bytes], scenario: Mapping[str, Any], pool: Machines) -> str:
    """What speaks against the files in this scenario; empty if nothing."""
    nonce = secrets.token_hex(8)
    tree = apply_edits(task.files, scenario.get("edits", ())) | scenario.get("files", {})
    graded = encode_files(
        {path: text.replace(NONCE, nonce) if path in scenario.get("files", {}) else text for path, text in tree.items()}
    )
    kept = restore_files(task, files)
    graded = {path: data for path, data in graded.items() if path not in editable(task)}
    graded = laid_over({path: kept[path] for path in editable(task) if path in kept}, graded)
    limit_s = max(FEWEST_S, TIMES_S * float(task.hidden["seconds"]))
    try:
        sandbox = await machine(task, pool, keep_spec)(graded)
    except UserError as error:
        return f"{scenario['name']}: the files were refused: {error}"
    try:
        ended = await _stepped(sandbox, task, graded, scenario, nonce, limit_s)
    except (WorkflowError, LimitReached) as error:
        return f"{scenario['name']}: {error}"
    except UserError as error:
        ended = CheckStepResult(False, str(error))
    finally:
        await sandbox.kill()
    wanted = scenario.get("says", "").replace(NONCE, nonce)
    if ended.good != scenario["ok"]:
        return f"{scenario['name']}: {'fails' if scenario['ok'] else 'ends well, and must not'}: {ended.output[-OUTPUT_CHARS:]}"
    if wanted and wanted not in ended.output:
        return f"{scenario['name']}: the output does not hold what it must: {ended.output[-OUTPUT_CHARS:]}"
    return ""


async def _stepped(
    sandbox: Disposable,
    task: Task,
    graded: Mapping[str, bytes],
    scenario: Mapping[str, Any],
    nonce: str,
    limit_s: float,
) -> CheckStepResult:
    """The steps up to the first that fails."""
    ended = CheckStepResult(True, "")
    for step in scenario["steps"]:
        if "workflow" in step:
            ended = await _workflow(sandbox, graded, step["workflow"], limit_s)
        elif "serve" in step:
            ended = await _serve(sandbox, step, limit_s)
        else:
            ran = await sandbox.run(step["run"].replace(NONCE, nonce), timeout_s=limit_s)
            ended = CheckStepResult(ran.rc == 0 and not ran.timed_out, _both(ran))
        if not ended.good:
            break
    return ended


async def _workflow(sandbox: Disposable, graded: Mapping[str, bytes], path: str, limit_s: float) -> CheckStepResult:
    output = ""
    for command in await run_bounded(commands_of, text_of(graded.get(path)), path):
        ran = await sandbox.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command.script],
            cwd=command.folder or None, env=command.env, timeout_s=limit_s,
        )  # fmt: skip
        output = f"{command.name}: {_both(ran)}"
        if ran.rc != 0 or ran.timed_out:
            return CheckStepResult(False, output)
    return CheckStepResult(True, output)


async def _serve(sandbox: Disposable, step: Mapping[str, Any], limit_s: float) -> CheckStepResult:
    """The service in the background, asked on the sandbox' own loopback."""
    address = f"http://127.0.0.1:{step['port']}{step['path']}"
    # Its own session and no output of ours: the shell ends while the service goes on, and the sandbox' end is the service's.
    start = f"setsid sh -c {_quoted(step['serve'])} >/tmp/service.log 2>&1 </dev/null & echo $!"
    pid = _text((await sandbox.run(start, timeout_s=limit_s)).out) or "none"
    argv = ["python3", "-c", PROBE, address, str(SERVES_WITHIN_S), pid]
    ran = await sandbox.run(argv, timeout_s=SERVES_WITHIN_S + 10)
    if ran.rc == 0:
        return CheckStepResult(ran.out.startswith(b"200 "), _text(ran.out))
    log = await sandbox.run("tail -c 300 /tmp/service.log", timeout_s=10)
    return CheckStepResult(False, f"{_text(ran.err)}; the service said: {_text(log.out)}")


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"


def _both(ran: ExecResult) -> str:
    return _text(ran.out + b"\n" + ran.err)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()
