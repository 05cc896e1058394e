"""A generator in a person's own package: `etude tasks make` takes it by import path and binds the folder to its source."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etude.cli.tasks.make import make
from etude.core.plugins import PluginError, import_object, source_digest, source_digests
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run import task_making
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.errors import TaskError
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.generators.registry import GENERATORS, custom_generator
from etude.tasks.generate.protocols import GenerationRequest, InstallResult
from etude.tasks.store.folder import TaskFolder

PROJECTS = Path(__file__).parents[2] / "recipes" / "projects.toml"
PATH = "my_generator:off_by_one"
SHOP = "def total(prices, limit):\n    return sum(price for price in prices if price < limit)\n"
TESTS = (
    "import unittest\nfrom shop import total\n\n\nclass T(unittest.TestCase):\n"
    "    def test_limit(self):\n        self.assertEqual(total([5], 5), 0)\n\n"
    "    def test_total(self):\n        self.assertEqual(total([1, 2], 5), 3)\n"
)
PROJECT = InstalledProject(
    Environment("shop", "1", tests=TestPlan("unittest", files=("test_shop.py",))),
    {"shop.py": SHOP, "test_shop.py": TESTS},
    Baseline(frozenset({"test_shop.T::test_limit", "test_shop.T::test_total"})),
    "made up",
)


@pytest.fixture
def module(template: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    async def built(name: str) -> InstallResult:
        return InstallResult(PROJECT)

    monkeypatch.setattr(task_making, "installing", lambda listed, installers: built)
    return template("generators") / "my_generator.py"


def order() -> GenerationRequest:
    found = custom_generator(PATH)
    return GenerationRequest(["shop"], {found.name: found}, sources=source_digests([PATH]))


def test_the_template_makes_a_proved_task_and_binds_the_folder_to_its_source(module: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks"
    report = task_making.make(read_recipe([]), order(), {}, out, lambda progress: None)
    assert report["faults"] == [] and report["tasks"] == 1, report
    (task_id,) = TaskFolder(out).ids()
    task = TaskFolder(out).task(task_id)
    assert " <= " in task.files["shop.py"] and task.solution == {"shop.py": SHOP}
    assert task.hidden["fail_to_pass"] == ["test_shop.T::test_limit"] and task.metadata["generator"] == "off-by-one"
    rows = [json.loads(line) for line in (out / "making.jsonl").read_text().splitlines()]
    assert {"kind": "sources", PATH: source_digest(PATH)} in rows
    task_making.make(read_recipe([]), order(), {}, out, lambda progress: None)
    module.write_text(module.read_text() + "# changed\n")
    with pytest.raises(TaskError, match=f"the source of the generator {PATH} has changed"):
        task_making.make(read_recipe([]), order(), {}, out, lambda progress: None)
    others = replace(order(), sources={}, generators={})
    task_making.make(read_recipe([]), others, {}, out, lambda progress: None)


def test_what_it_raises_is_reported_and_ends_nothing(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build(*arguments: object) -> object:
        raise RecursionError("deep")

    monkeypatch.setattr(import_object("my_generator:OffByOne"), "build", build)
    report = task_making.make(read_recipe([]), order(), {}, tmp_path / "tasks", lambda progress: None)
    assert report["tasks"] == 0 and "the generator broke: RecursionError: deep" in report["faults"][0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("off_by_one = OffByOne", "is a class; a generator is an object"),
        ("OffByOne.name = 'history'", "its name is 'history'; it needs a name that no built-in generator has"),
        ("OffByOne.category = None", "has no category"),
        ("OffByOne.languages = 'python'", "its languages are 'python'"),
        ("OffByOne.candidates = None", "has no method candidates"),
    ],
)
def test_what_is_no_generator_is_refused_before_any_project_is_fetched(
    changed: str, message: str, module: Path, tmp_path: Path
) -> None:
    module.write_text(f"{module.read_text()}\n{changed}\n")
    with pytest.raises(PluginError, match=message):
        make(PROJECTS, tmp_path / "tasks", generators=[PATH])
    assert not (tmp_path / "tasks").exists()


def test_names_and_paths_may_be_mixed_and_the_default_is_built_in(module: Path, tmp_path: Path) -> None:
    for wanted, expected in (
        ([PATH], ["off-by-one"]),
        (["review", PATH], ["review", "off-by-one"]),
        (None, list(GENERATORS)),
    ):
        answer = make(PROJECTS, tmp_path / "tasks", generators=wanted, dry_run=True)
        assert list(answer.document["generators"]) == expected
