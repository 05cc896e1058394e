"""Broken builds, workflows, scripts and services: what tells them from right ones is run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from grid_project import SHAPES, grid

from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.generators.devops.generator import MAKERS, DevopsRepair
from etude.tasks.generate.generators.devops.recipe import DevopsProject, Maker
from etude.tasks.generate.generators.kinds import modules
from etude.tasks.generate.generators.kinds.defects import defects
from etude.tasks.graders.devops import objection
from etude.tasks.registry import grade
from etude.tasks.task import Task


def subject() -> DevopsProject:
    project = grid()
    return DevopsProject(project, next(modules.tested_modules(project)), defects("grid/shapes.py", SHAPES)[0])


@pytest.mark.parametrize("maker", MAKERS)
def test_every_breakage_appears_once_in_the_right_text(maker: Maker) -> None:
    recipe = maker(subject())
    for one in recipe.breakages:
        assert recipe.files[one.path].count(one.old) == 1, one.name
        assert one.old not in one.new or one.old + one.new != one.new + one.old, one.name
    assert len({one.name for one in recipe.breakages}) == len(recipe.breakages)


async def test_a_broken_script_is_a_task_and_a_target_that_does_nothing_no_solution(bench: ProofContext) -> None:
    candidates = {one.id: one for one in DevopsRepair().candidates(grid(), bench, 0)}
    task = await candidates["grid-1.0/devops/release_script-1"].build()
    assert task.solution and set(task.metadata["editable"]) == {"scripts/release.sh"}
    files = {path: text.encode() for path, text in task.files.items()}
    verdict = await grade(task, files | {"scripts/release.sh": b"#!/bin/sh\ntrue\n"}, bench.pool)
    assert verdict.score == 0 and verdict.reason


async def test_a_service_is_asked_on_its_own_loopback_and_must_answer_with_the_project(bench: ProofContext) -> None:
    recipe = next(maker for maker in MAKERS if maker.__name__ == "service")(subject())
    files = {**grid().files, **recipe.files}
    task = Task("t", "devops", "service", "", files, (), "devops", {"scenarios": list(recipe.scenarios), "seconds": 1})
    task = replace(task, metadata={"editable": list(recipe.files)})
    right = {path: text.encode() for path, text in files.items()}
    assert await objection(task, right, recipe.scenarios[0], bench.pool) == ""
    canned = right | {"service/app.py": right["service/app.py"].replace(b'"build": build', b'"build": "1.0"')}
    assert "does not hold" in await objection(task, canned, recipe.scenarios[0], bench.pool)


def test_a_changed_module_is_visibly_younger_than_the_archive(tmp_path: Path) -> None:
    """Within one tick of the file system's clock `make` sees no change: 3 of 60 right Makefiles failed for it."""
    recipe = next(maker for maker in MAKERS if maker.__name__ == "makefile")(subject())
    again = next(one for one in recipe.scenarios if one["name"] == "make dist packs again what was changed")
    (tmp_path / "grid").mkdir()
    fake = tmp_path / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nif test -e packed; then cp -p grid/_stamp.py changed; else touch packed; fi\n")
    fake.chmod(0o755)
    path = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", again["steps"][0]["run"]], cwd=tmp_path, env=path, check=True)
    assert (tmp_path / "changed").stat().st_mtime - (tmp_path / "packed").stat().st_mtime > 0.05


@pytest.mark.nightly
@pytest.mark.parametrize("maker", MAKERS)
async def test_every_breakage_alone_is_noticed_by_a_scenario(maker: Maker, bench: ProofContext) -> None:
    recipe = maker(subject())
    files = {**grid().files, **recipe.files}
    task = Task("t", "devops", "l", "", files, (), "devops", {"scenarios": list(recipe.scenarios), "seconds": 1})
    task = replace(task, metadata={"editable": list(recipe.files)})
    right = {path: text.encode() for path, text in files.items()}
    assert (await grade(task, right, bench.pool)).reason == ""
    for one in recipe.breakages:
        broken = recipe.files[one.path].replace(one.old, one.new).encode()
        assert (await grade(task, right | {one.path: broken}, bench.pool)).score == 0, one.name
