"""What a person typed and the commit that came of it become a task of the installed repository, and so does the commit alone."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.core.trace.entry import SessionHeader
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.generators import history, recorded
from etude.tasks.recorded.origin import Origin
from etude.tasks.recorded.session import RecordedSession
from etude.tasks.recorded.task_plans import RecordedTaskPlan
from etude.tasks.tree import tree

TEST = """\
import unittest
from sums import total


class Sums(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([]), 0)
"""
NEW = "\n    def test_mean(self):\n        from sums import mean_of\n        self.assertEqual(mean_of([1, 3]), 2)\n"
BEGUN = {"sums.py": "def total(rows):\n    return sum(rows)\n", "tests/test_sums.py": TEST}
DONE = {"sums.py": BEGUN["sums.py"] + "\n\ndef mean_of(rows):\n    return total(rows) / len(rows)\n", "tests/test_sums.py": TEST + NEW}  # fmt: skip
OTHER = {**DONE, "sums.py": BEGUN["sums.py"] + "\n\nmean_of = lambda rows: sum(rows) / len(rows)\n"}
WRONG = {**DONE, "sums.py": BEGUN["sums.py"] + "\n\ndef mean_of(rows):\n    return 0\n"}
REQUEST = "we also want the mean of the rows, next to total"


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", "-C", str(self.root), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: dict[str, str], message: str) -> str:
        for path, text in files.items():
            (self.root / path).parent.mkdir(exist_ok=True)
            (self.root / path).write_text(text)
        self.git("add", ".")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
async def bench() -> AsyncIterator[ProofContext]:
    pool = await open_pool(SandboxSettings())
    yield ProofContext(pool, 20.0)
    await pool.close()


def installed(repository: Repository, commit: str) -> InstalledProject:
    plan = TestPlan("exit", ("python3", "-m", "unittest", "-q", "{files}"), ("tests/test_sums.py",))
    files = tree(repository.root, commit).files
    return InstalledProject(Environment("sums", commit, tests=plan), files, Baseline(frozenset()), f"git {commit}")


def origin(repository: Repository, base: str, head: str) -> Origin:
    session = RecordedSession(Path("s.jsonl"), SessionHeader("s"), (), REQUEST, 0)
    return Origin(session, repository.root, base, head, 4, "link")


async def test_a_request_is_asked_as_it_was_typed_and_shown_by_the_commits_tests(
    repository: Repository, bench: ProofContext
):
    base = repository.commit(BEGUN, "Begin with totals")
    head = repository.commit(DONE, "Add the mean")
    repository.git("checkout", "-q", base)
    other = repository.commit(OTHER, "Add the mean")
    project = installed(repository, head)
    one = RecordedTaskPlan(origin(repository, base, head), (origin(repository, base, other),))
    task = await recorded.build(project, bench, one, "features/sums/recorded/x")
    assert task.metadata["prompts"]["terse"] == REQUEST == task.instruction.partition("\n")[0]
    assert task.metadata["prompts"]["full"].endswith("## Interface\n\n- `def mean_of(rows)`\n")
    assert task.files["sums.py"] == BEGUN["sums.py"] and task.solution == {"sums.py": DONE["sums.py"]}
    assert task.hidden["files"] == {"tests/test_sums.py": DONE["tests/test_sums.py"]}
    assert task.metadata["generator"] == "recorded" and task.metadata["solutions"] == 2


async def test_tests_that_refuse_another_solution_of_the_same_request_make_no_task(
    repository: Repository, bench: ProofContext
):
    base = repository.commit(BEGUN, "Begin with totals")
    head = repository.commit(DONE, "Add the mean")
    repository.git("checkout", "-q", base)
    other = repository.commit(WRONG, "Add the mean")
    one = RecordedTaskPlan(origin(repository, base, head), (origin(repository, base, other),))
    with pytest.raises(CandidateRejected, match="refuse another solution"):
        await recorded.build(installed(repository, head), bench, one, "features/sums/recorded/x")


@pytest.mark.nightly
async def test_a_commit_is_a_task_by_its_message(repository: Repository, bench: ProofContext):
    repository.commit(BEGUN, "Begin with totals")
    head = repository.commit(DONE, "Add the mean of rows\n\nSigned-off-by: A <a@example.org>")
    repository.commit(OTHER, "Write the mean shorter")
    [candidate] = history.HistoryGenerator({"sums": repository.root}).candidates(installed(repository, head), bench, 0)
    task = await candidate.build()
    assert task.metadata["commit"] == head and task.metadata["facts"]["headline"] == "Add the mean of rows"
    assert task.hidden["fail_to_pass"] and "def mean_of(rows)" in task.metadata["prompts"]["full"]
