"""A task source in a person's own package becomes a folder of tasks that training and the benchmark read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.cli.tasks.import_ import source
from etude.core.plugins import PluginError, import_object
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.practice import exam, practice, require_graders
from etude.tasks.errors import TaskError
from etude.tasks.importers.plugin import custom_source, ids_of
from etude.tasks.registry import custom_grader

PATH, GRADER = "my_source:greetings", "my_source:prints"


@pytest.fixture
def module(template: Callable[[str], Path]) -> Iterator[Path]:
    custom_grader.cache_clear()
    yield template("task_sources") / "my_source.py"
    custom_grader.cache_clear()


def test_the_tasks_of_the_template_are_checked_and_drawn_from(module: Path, tmp_path: Path) -> None:
    out = tmp_path / "greetings"
    assert len(source(PATH, out, dry_run=True).document["tried"]) == 4
    answer = source(PATH, out, [GRADER])
    assert answer.document["left_out"] == {} and len(answer.document["taken"]) == 4, answer.text
    chosen = [f'tasks.folder="{out}"', f'tasks.plugins=["{GRADER}"]', "rl.steps=1", "rl.groups_per_step=2"]
    recipe = read_recipe([], [*chosen, "bench.tasks=2"])
    assert sorted(practice(recipe).source.ids("train")) == ["greet/hello", "greet/welcome"]
    require_graders(recipe, exam(recipe).tasks)
    assert source(PATH, out, [GRADER]).document == answer.document  # answered from the report
    module.write_text(module.read_text() + "# changed\n")
    with pytest.raises(TaskError, match="exists already"):
        source(PATH, out, [GRADER])


def test_a_bad_task_is_left_out_with_the_reason_and_the_others_are_taken(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = import_object("my_source:Greetings")
    good = kind.task

    def task(self: object, task_id: str) -> object:
        if task_id == "greet/hello":
            raise RuntimeError("the archive is torn")
        return 1 if task_id == "greet/thanks" else good(self, task_id)

    monkeypatch.setattr(kind, "task", task)
    found = source(PATH, tmp_path / "out", [GRADER]).document
    assert sorted(found["taken"]) == ["greet/goodbye", "greet/welcome"]
    assert "the archive is torn" in found["left_out"]["greet/hello"] and "gave int" in found["left_out"]["greet/thanks"]


def test_a_grader_of_the_source_needs_to_be_allowed(module: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="nothing could be imported.*may not name code that was not allowed"):
        source(PATH, tmp_path / "out")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("greetings = Greetings", "is a class; a source of tasks is an object"),
        ("Greetings.name = None", "has no name"),
        ("Greetings.task = None", "has no method task()"),
        (
            "Greetings.ids = lambda self, split: ['one']",
            "ids('validation') gave 'one'; an id is a text and belongs to one split",
        ),
        ("Greetings.ids = lambda self, split: {}['x']", "ids('train') failed: KeyError: 'x'"),
    ],
)
def test_what_is_no_source_is_refused_before_a_sandbox_is_made(
    changed: str, message: str, module: Path, tmp_path: Path
) -> None:
    module.write_text(f"{module.read_text()}\n{changed}\n")
    with pytest.raises(PluginError, match=re.escape(message)):
        source(PATH, tmp_path / "out", [GRADER])
    assert not (tmp_path / "out").exists()


def test_ids_keep_their_order_and_their_split(module: Path) -> None:
    assert custom_source(PATH).name == "greetings"
    assert list(ids_of(PATH).items())[2:] == [("greet/thanks", "validation"), ("greet/goodbye", "heldout")]
