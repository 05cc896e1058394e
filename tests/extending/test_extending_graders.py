"""A grader in a person's own package: it judges where it is allowed, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from etude.cli.prepare import require_plugins, require_tasks
from etude.core.plugins import PluginError, import_object, source_digest
from etude.evaluate.bench.prices import Prices
from etude.evaluate.bench.runs.checking import SuiteBroken, checked_tasks
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.collecting import CollectionOrder, suite_of
from etude.pipeline.run.execute import Run
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.plan import PlanError
from etude.pipeline.run.plugins import plugin_sources
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.checking.check import KEPT, check_folder
from etude.tasks.errors import TaskDefective
from etude.tasks.registry import custom_grader, grade, graders_with
from etude.tasks.solved import reference_files
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Split, Task

PATH = "my_grader:expected_output"
GREET = "hello.py"


def the_task(split: Split = "train", number: int = 1) -> Task:
    return Task(
        f"greet/{number}",
        "features",
        "greeting",
        "Print hello.",
        {GREET: "print('bye')\n"},
        ("python", GREET),
        PATH,
        hidden={"command": ["python", GREET], "prints": "hello"},
        solution={GREET: "print('hello')\n"},
        split=split,
    )


@pytest.fixture
def module(template: Callable[[str], Path]) -> Iterator[Path]:
    custom_grader.cache_clear()
    yield template("graders") / "my_grader.py"
    custom_grader.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tasks = TaskFolder(tmp_path / "tasks", make=True)
    splits: tuple[Split, ...] = ("train", "heldout", "heldout")
    for number, split in enumerate(splits):
        tasks.add(the_task(split, number))
    return tmp_path / "tasks"


async def test_the_template_judges_a_solution_and_a_failure(module: Path) -> None:
    pool = await open_pool(SandboxSettings())
    try:
        task, graders = the_task(), graders_with([PATH])
        assert (await grade(task, reference_files(task), pool, graders)).score == 1
        untouched = await grade(task, {GREET: b"print('bye')\n"}, pool, graders)
        assert untouched.score == 0 and "'bye'" in untouched.reason
    finally:
        await pool.close()


async def test_a_task_that_names_a_grader_which_is_not_allowed_runs_no_code(
    module: Path, folder: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    module.write_text(f"open({str(ran)!r}, 'w')\n" + module.read_text())
    pool = await open_pool(SandboxSettings(backend="fake"))
    rows = await check_folder(folder, pool)
    assert all("tasks.plugins" in row.problem and "--plugin" in row.problem for row in rows), rows
    with pytest.raises(KeyError, match="may not name code that was not allowed"):
        await grade(the_task(), {}, pool)
    recipe = read_recipe([], [])
    suite = suite_of(CollectionOrder("expert", str(folder), tmp_path / "out"), recipe)
    with pytest.raises(SuiteBroken, match="tasks.plugins"):
        checked_tasks(suite, suite.ids)
    assert not ran.exists()


def a_run(folder: Path, tmp_path: Path, *settings: str) -> Run:
    chosen = [f'tasks.folder="{folder}"', "bench.tasks=2", "rl.steps=1", "rl.groups_per_step=1", *settings]
    return Run(read_recipe([], chosen), tmp_path / "run")


@pytest.mark.parametrize("stage", ["rl", "bench"])
def test_a_run_whose_tasks_name_it_needs_the_setting(stage: str, module: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"may not name code that was not allowed.*{PATH}"):
        require_tasks(a_run(folder, tmp_path), [stage])
    require_tasks(a_run(folder, tmp_path, f'tasks.plugins=["{PATH}"]'), [stage])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:grader", "tasks.plugins: no_such_module:grader: the module no_such_module can't be imported"),
        ("my_grader:ExpectedOutput", "is a class; a grader is an object"),
        ("my_grader:Verdict.passed", "has no method `async def grade"),
    ],
)
def test_a_path_to_no_grader_is_refused_before_a_stage(
    path: str, message: str, module: Path, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message) as refused:
        require_plugins(a_run(folder, tmp_path, f'tasks.plugins=["{path}"]'), ["rl"])
    assert "\n" not in str(refused.value)


async def test_a_check_holds_for_the_source_of_the_grader(module: Path, folder: Path) -> None:
    pool = await open_pool(SandboxSettings())
    try:
        first = await check_folder(folder, pool, plugins=[PATH])
        assert [(row.reference, row.nop, row.problem) for row in first] == [(1, 0, "")] * 3
        assert [row.cheats for row in first] == [{"empty_files": 0.0}] * 3
        assert first[0].audit["by"].endswith(source_digest(PATH)[:16])
        made = pool.stats().created
        assert await check_folder(folder, pool, plugins=[PATH]) == first and pool.stats().created == made
        module.write_text(module.read_text() + "# changed\n")
        await check_folder(folder, pool, plugins=[PATH])
        assert pool.stats().created > made
        assert all(row.problem for row in await check_folder(folder, pool))
        assert len((folder / KEPT).read_text().splitlines()) == 6
    finally:
        await pool.close()


async def test_what_it_raises_or_returns_never_leaves_the_attempt(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, graders, pool = the_task(), graders_with([PATH]), await open_pool(SandboxSettings(backend="fake"))
    kind = import_object("my_grader:ExpectedOutput")

    async def strict(self: object, task: Task, files: dict[str, bytes], pool: object) -> object:
        return import_object("my_grader:Verdict")(0.5) if files[GREET].startswith(b"print") else {}["absent"]

    monkeypatch.setattr(kind, "grade", strict)
    assert (await grade(task, {GREET: b"?"}, pool, graders)).reason.startswith(f"grader {PATH} can't judge")

    async def a_number(self: object, task: Task, files: dict[str, bytes], pool: object) -> object:
        return 1.0

    monkeypatch.setattr(kind, "grade", a_number)
    with pytest.raises(TaskDefective, match="it gave float; a grader gives a Verdict"):
        await grade(task, {GREET: b"?"}, pool, graders)


def test_a_run_is_bound_to_the_source(module: Path, folder: Path, tmp_path: Path) -> None:
    run = a_run(folder, tmp_path, f'tasks.plugins=["{PATH}"]')
    stage = next(one for one in run.graph if one.name == "sessions")
    (run.folder / "corpus").mkdir(parents=True)
    ledger = StageLedger(run.folder / "ledger.jsonl")
    corpus = next(one for one in run.graph if one.name == "corpus")
    ledger.start("corpus", run.settings(corpus), {}, plugin_sources(run.recipe, corpus.reads))
    ledger.finish("corpus")
    sources = plugin_sources(run.recipe, stage.reads)
    assert sources == {PATH: source_digest(PATH)}
    ledger.start("sessions", run.settings(stage), {"corpus": "corpus-1"}, sources)
    (run.folder / "recipe.toml").touch()
    assert [step.action for step in run.plan(["sessions"])] == ["resume"]
    module.write_text(module.read_text() + "# changed\n")
    with pytest.raises(PlanError, match=f"the source of {PATH} has changed since stage sessions began"):
        run.plan(["sessions"])
    assert [step.action for step in run.plan(["corpus"])] == ["skip"]


def test_a_suite_with_another_source_has_another_digest(module: Path, tmp_path: Path) -> None:
    manifest = SuiteManifest(name="greetings", version="1", released=date(2026, 11, 28))
    root = freeze(tmp_path / "suite", manifest, [the_task("heldout")], price_list=Prices()).root
    plain, allowed = (FolderSuite(root, plugins=paths) for paths in ((), (PATH,)))
    with pytest.raises(SuiteBroken, match="tasks.plugins"):
        checked_tasks(plain, plain.ids)
    assert [task.grader for task in checked_tasks(allowed, allowed.ids)] == [PATH]
    module.write_text(module.read_text() + "# changed\n")
    assert len({plain.digest, allowed.digest, FolderSuite(root, plugins=(PATH,)).digest}) == 3


def test_a_digest_covers_the_whole_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "my_graders"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from my_graders.helper import grader\n")
    (package / "helper.py").write_text("grader = object()\n")
    before = source_digest("my_graders.one:grader")
    (package / "helper.py").write_text("grader = object()  # changed\n")
    assert source_digest("my_graders.one:grader") != before
    with pytest.raises(PluginError):
        custom_grader("my_graders.one:grader")
