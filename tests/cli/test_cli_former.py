"""A former spelling of a verb is hidden, does what the present one does, and names it on stderr."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typer
from here import Here, document
from session_lab import record

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.cli.main import app
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.store import WeightStore
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.harbor import write_task

RECIPE = '[corpus.sources.mine]\nkind = "folder"\npath = "code"\n'


@pytest.fixture
def folder(here: Here, tmp_path: Path) -> Path:
    """A store, a library, tasks and sessions under the names that the cases use."""
    model = new_model(ModelSettings(hidden_size=16, layers=1, heads=2, experts=2), byte_tokenizer().get_vocab_size())
    Publisher(WeightStore(tmp_path / "store")).publish(model.state_dict(), 0)
    source = ExerciseSource(ExerciseSettings())
    write_task(source.task(source.ids("heldout")[0]), tmp_path / "tasks" / "one")
    record(tmp_path / "a.jsonl")
    shutil.copytree(Path(__file__).parent, tmp_path / "code", ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    (tmp_path / "mine.toml").write_text(RECIPE)
    assert here("corpus", "build", "mine.toml", "--out", "lib").returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    ("former", "arguments", "present"),
    [
        ("weights verify", "store", "weights show --verify"),
        ("corpus stats", "lib", "corpus show --summary"),
        ("tasks stats", "tasks", "tasks list --summary"),
        ("session fidelity", "a.jsonl a.jsonl", "session diff --harness"),
        ("sandbox layers verify", "--store layers", "sandbox layers list --verify"),
    ],
)
def test_a_former_spelling_answers_as_the_present_one_and_names_it(
    here: Here, folder: Path, former: str, arguments: str, present: str
) -> None:
    old = here(*former.split(), *arguments.split(), "--json")
    new = here(*present.split(), *arguments.split(), "--json")
    assert document(old).items() <= document(new).items() and old.returncode == new.returncode == 0
    assert f"`etude {former}` is now `etude {present}`" in old.stderr and "is now" not in new.stderr


def test_a_damaged_store_is_listed_and_ends_with_status_1(here: Here, folder: Path) -> None:
    (file,) = [path for path in (folder / "store").rglob("*") if path.is_file() and path.stat().st_size > 5000]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    done = here("weights", "show", "store", "--verify")
    assert done.returncode == 1 and "1 anchors" in done.stdout and "damaged:" in done.stdout
    assert here("weights", "show", "store").returncode == 0


def test_a_summary_counts_the_rows_that_the_filters_leave(here: Here, folder: Path) -> None:
    assert document(here("tasks", "list", "tasks", "--summary", "--json"))["tasks"] == 1
    assert document(here("tasks", "list", "tasks", "--summary", "--split", "train", "--json"))["tasks"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tasks list --summary", "name a folder of tasks"),
        ("corpus show lib --summary --number 3", "leave out --number"),
    ],
)
def test_a_summary_that_can_not_be_given_is_refused(here: Here, folder: Path, words: str, said: str) -> None:
    done = here(*words.split())
    assert done.returncode != 0 and said in done.stderr


def test_former_spellings_are_hidden() -> None:
    groups = {"corpus": "stats", "weights": "verify", "tasks": "stats", "session": "fidelity"}
    for group, former in groups.items():
        commands = typer.main.get_command(app).commands[group].commands  # type: ignore[attr-defined]
        assert commands[former].hidden, former
