"""A task whose sandbox tells its answer is none: what a dependency carries of the project, or a tool's cache, no proof over files finds."""

from __future__ import annotations

from etude.sandbox.protocol import Machines
from etude.tasks.auditing.scan import audit_problems, scan_for_leaks
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.task import Task


async def require_secret(task: Task, pool: Machines) -> None:
    """Searches the sandbox as an agent gets it, about a second. Raises CandidateRejected with the place of the answer, and InfraError."""
    if found := audit_problems(await scan_for_leaks(task, pool)):
        raise CandidateRejected(f"its sandbox tells: {'; '.join(found[:3])}")
