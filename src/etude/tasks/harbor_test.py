"""Grades a workspace for a foreign Harbor harness: `python -m etude.tasks.harbor_test TASK_DIR WORKSPACE REWARD_JSON`.

The verdict is that of the task's own grader, in sandboxes opened here. Infra trouble, a task that can't be read and a
grader of another package end with status 3 and no reward file, so that they are never read as a score.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from etude.sandbox.errors import InfraError
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.errors import TaskError
from etude.tasks.harbor import HarborError, read_task
from etude.tasks.registry import GRADERS, grade, no_grader
from etude.tasks.task import Verdict

INFRA_STATUS = 3
# A workspace of exercises is a few kB; what is larger is not read.
MAX_FILE_BYTES = 1 << 20


async def judge(task_folder: Path, workspace: Path) -> Verdict:
    """The verdict on the regular files of `workspace`; links are not followed. Raises InfraError, TaskError, HarborError."""
    task = read_task(task_folder)
    if task.grader not in GRADERS:
        raise TaskError(no_grader(task.grader, GRADERS))
    files = {
        str(path.relative_to(workspace)): path.read_bytes()
        for path in sorted(workspace.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES
    }
    pool = await open_pool(SandboxSettings(backend="auto"))
    try:
        return await grade(task, files, pool)
    finally:
        await pool.close()


def main(arguments: list[str]) -> int:
    """Writes `{"reward": score, ...}`; the exit status is 0 whenever there is a verdict."""
    task_folder, workspace, reward = map(Path, arguments)
    reward.unlink(missing_ok=True)
    try:
        verdict = asyncio.run(judge(task_folder, workspace))
    except InfraError as error:
        print(f"no verdict, the machine is at fault: {error}", file=sys.stderr)
        return INFRA_STATUS
    except (TaskError, HarborError) as error:
        print(f"no verdict: {task_folder}: {error}", file=sys.stderr)
        return INFRA_STATUS
    passed = sum(verdict.tests.values())
    reward.write_text(json.dumps({"reward": verdict.score, "tests_passed": passed, "tests": len(verdict.tests)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
