"""`etude tasks import swe-bench --install`: the tree of a row is installed like any project, and its task runs in what came of it."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from etude.pipeline.run.row_installing import open_row_installer, wanted_of
from etude.sandbox.errors import InfraError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.cheats.exercise import nop
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.importers.swe_bench import candidates
from etude.tasks.importers.swe_bench_rows import SweBenchRow
from etude.tasks.solved import reference_files
from etude.tasks.validation.change import GradingContext

MANIFEST = """\
[project]
name = "shop"
version = "1"
dependencies = ["sortedcontainers==2.4.0"]

[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["shop"]
"""
BAD = "from sortedcontainers import SortedList\n\n\ndef cheapest(prices):\n    return SortedList(prices)[-1]\n"
GOOD = BAD.replace("[-1]", "[0]")
TEST = "from shop import cheapest\n\n\ndef test_one():\n    assert cheapest([1]) == 1\n"
MORE = f"{TEST}\n\ndef test_several():\n    assert cheapest([3, 1, 2]) == 1\n"
FILES = {"pyproject.toml": MANIFEST, "shop/__init__.py": BAD, "tests/test_shop.py": TEST}


def patch(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}")
    return f"diff --git a/{path} b/{path}\n{''.join(lines)}"


@pytest.fixture
def row(tmp_path: Path) -> SweBenchRow:
    """A row of the one commit of tmp_path/mirrors/owner__shop."""
    clone = tmp_path / "mirrors" / "owner__shop"
    for path, text in FILES.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=clone, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, capture_output=True, text=True).stdout.strip()
    return SweBenchRow(
        instance_id="owner__shop-1",
        repo="owner/shop",
        base_commit=commit,
        patch=patch("shop/__init__.py", BAD, GOOD),
        test_patch=patch("tests/test_shop.py", TEST, MORE),
        problem_statement="the cheapest is the dearest",
        fail_to_pass=("tests/test_shop.py::test_several",),
        pass_to_pass=("tests/test_shop.py::test_one",),
    )


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


def test_a_row_is_a_commit_of_its_clone_in_the_language_of_its_manifest(tmp_path: Path, row: SweBenchRow) -> None:
    result = wanted_of(row, tmp_path / "mirrors", FILES)
    assert (result.kind, result.version, result.language) == ("git", row.base_commit, "python")
    assert result.path == str((tmp_path / "mirrors" / "owner__shop").resolve())
    assert wanted_of(row, tmp_path / "mirrors", {"package.json": "{}"}).language == "javascript"
    assert wanted_of(row, tmp_path / "mirrors", {"package.json": "{}", "setup.py": ""}).language == "python"
    with pytest.raises(CandidateRejected, match="no clone of owner/other"):
        wanted_of(replace(row, repo="owner/other"), tmp_path / "mirrors", {})


@pytest.mark.nightly
async def test_a_row_whose_project_needs_a_package_is_installed_and_graded(
    tmp_path: Path, row: SweBenchRow, pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "cache"))
    install = open_row_installer(tmp_path / "mirrors", pool)
    [candidate] = candidates([row], tmp_path / "mirrors", GradingContext(pool, CommandsGrader(), 60.0), install=install)
    try:
        task = await candidate.build()
    except (InfraError, CandidateRejected) as error:
        if "can't be fetched" in str(error) or "reached" in str(error):
            pytest.skip(str(error))
        raise
    assert task.metadata["environment"]["snapshot"] and task.instruction.endswith("the cheapest is the dearest")
    assert [name.partition("::")[2] for name in task.hidden["fail_to_pass"]] == ["test_several"]
    grader = CommandsGrader()
    assert (await grader.grade(task, reference_files(task), pool)).score == 1
    assert (await grader.grade(task, nop(task), pool)).score == 0
