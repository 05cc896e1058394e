"""A run writes into a folder of its own, and `etude clean` removes what runs made there and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.cli.clean import CleanError, clean
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.pipeline.recipe.recipe import Recipe, RunSettings
from etude.pipeline.run.execute import Run
from etude.pipeline.run.lock import NotALock, RunLock, holder
from etude.pipeline.run.manifest import NotARunDirectory, RunManifest, is_run_directory, remove, set_aside, split_owned
from etude.pipeline.run.stage import Stage


def _stage(name: str, *after: str, seed: str = "rl.seed") -> Stage:
    return Stage(name, after, (seed,), "manifest_body:body", "one process")


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}")
    return read_recipe([find_recipe("ci")], [])


@pytest.fixture
def done(recipe: Recipe, tmp_path: Path) -> Run:
    """A run of two stages that has ended."""
    run = Run(recipe, tmp_path / "run", (_stage("base"), _stage("sft", "base")))
    run.execute(["base", "sft"], view=False)
    return run


def _tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


FOREIGN = {
    "files of a person": {"file.txt": "mine", "recipe.toml": "mine", "corpus/mine.txt": "mine"},
    "a ledger of accounts": {"ledger.jsonl": '{"account": 1}\n', "notes.txt": "mine"},
    "a ledger that is no JSON": {"ledger.jsonl": "2026-01-01 opened\n2026-01-02 closed\n", "a": "mine"},
    "a manifest of another tool": {"manifest.jsonl": '{"files": []}\n', "a": "mine"},
    "an empty ledger": {"ledger.jsonl": "", "corpus/mine.txt": "mine"},
    "a recipe alone": {"recipe.toml": '[run]\nname = "x"\n'},
    "a hidden file": {".env": "KEY=1"},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_that_holds_something_else_is_refused_and_left_as_it_was(
    recipe: Recipe, tmp_path: Path, name: str
) -> None:
    for path, text in FOREIGN[name].items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    before = _tree(tmp_path)
    run = Run(recipe, tmp_path, (_stage("base"),))
    for attempt in (lambda: run.plan(["base"]), lambda: run.execute(["base"], view=False)):
        with pytest.raises(NotARunDirectory, match=f"{tmp_path} holds .* is no run directory; nothing was changed"):
            attempt()
    with pytest.raises(CleanError, match="is no run directory"):
        clean([tmp_path], yes=True)
    assert _tree(tmp_path) == before


def test_a_file_in_place_of_a_folder_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(NotARunDirectory, match="is no folder"):
        Run(recipe, tmp_path / "f", (_stage("base"),)).execute(["base"], view=False)
    assert (tmp_path / "f").read_text() == "mine"


def test_new_empty_and_own_directories_are_taken(done: Run, recipe: Recipe, tmp_path: Path) -> None:
    assert [step.action for step in done.execute(["base", "sft"], view=False)] == ["skip", "skip"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "lock").touch()  # what a run leaves that was killed at once
    Run(recipe, tmp_path / "empty", (_stage("base"),)).execute(["base"], view=False)
    assert (tmp_path / "empty" / "base" / "made.json").is_file()


def test_a_directory_of_an_earlier_release_goes_on_and_can_be_cleaned(done: Run) -> None:
    (done.folder / "manifest.jsonl").unlink()
    assert is_run_directory(done.folder)
    assert [step.action for step in done.execute(["base"], view=False)] == ["skip"]
    (done.folder / "manifest.jsonl").unlink()
    (done.folder / "notes.txt").write_text("mine")
    clean([done.folder], yes=True)
    assert _tree(done.folder) == {"notes.txt": "mine"}


def test_clean_removes_the_whole_directory_of_a_run(done: Run) -> None:
    answer = clean([done.folder], yes=True)
    assert not done.folder.exists() and answer.document["kept"] == []
    assert answer.document["bytes"] > 0


def test_clean_keeps_and_lists_what_the_run_did_not_make(done: Run) -> None:
    mine = {"notes.txt", "base/mine.txt", "sft/deep/mine.txt", "photos/a/b.jpg"}
    for name in mine:
        (done.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (done.folder / name).write_text("mine")
    result = clean([done.folder], dry_run=True).document
    assert set(result["would_keep"]) == {str(done.folder / name) for name in mine}
    answer = clean([done.folder], yes=True)
    assert set(answer.document["kept"]) == {str(done.folder / name) for name in mine}
    assert set(_tree(done.folder)) == mine and "kept, as no run made it" in answer.text


def test_clean_follows_no_link(done: Run, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "a.txt").write_text("mine")
    (done.folder / "base" / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "alias").symlink_to(done.folder)
    with pytest.raises(CleanError, match="is a link"):
        clean([tmp_path / "alias"], yes=True)
    clean([done.folder], yes=True)
    assert (tmp_path / "precious" / "a.txt").read_text() == "mine"


def test_a_stage_that_is_cleaned_is_made_again_and_keeps_a_persons_file(done: Run) -> None:
    (done.folder / "sft" / "mine.txt").write_text("mine")
    clean([done.folder], stage="sft", yes=True)
    assert _tree(done.folder / "sft") == {"mine.txt": "mine"} and (done.folder / "base" / "made.json").is_file()
    clean([done.folder], stage="base", yes=True)
    assert not (done.folder / "base").exists()


@pytest.mark.nightly
def test_a_persons_files_survive_every_remaking_of_a_stage(done: Run, recipe: Recipe) -> None:
    for seed in range(1, 5):
        (done.folder / "base" / f"mine{seed}.txt").write_text("mine")
        changed = recipe.model_copy(update={"rl": recipe.rl.model_copy(update={"seed": seed})})
        Run(changed, done.folder, done.graph).execute(["base", "sft"], view=False)
    kept = {Path(name).name for name, text in _tree(done.folder).items() if text == "mine"}
    assert kept == {f"mine{seed}.txt" for seed in range(1, 5)}
    _, others = split_owned(done.folder)
    assert {path.name for path in others} == kept


def test_what_a_killed_stage_wrote_is_the_runs(tmp_path: Path) -> None:
    manifest = RunManifest(tmp_path)
    manifest.begin()
    manifest.open("base")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "half.part").write_text("x")
    with (tmp_path / "manifest.jsonl").open("a") as file:
        file.write('{"folder": "ba')  # torn by the kill
    assert remove(tmp_path) == [] and not tmp_path.exists()


def test_what_lay_in_a_folder_before_a_stage_went_on_stays_a_persons(tmp_path: Path) -> None:
    manifest = RunManifest(tmp_path)
    manifest.begin()
    manifest.open("base")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "made.json").write_text("x")
    manifest.close("base")
    (tmp_path / "base" / "mine").write_text("mine")
    RunManifest(tmp_path).open("base")
    (tmp_path / "base" / "more.json").write_text("x")
    assert [path.name for path in remove(tmp_path)] == ["mine"]


NAMES = st.lists(st.sampled_from(["a.json", "b.bin", "c/d.zst", "c/e.zst", "c/f/g.npy"]), unique=True)


@given(NAMES, NAMES, st.booleans())
def test_exactly_the_outputs_that_were_made_while_a_folder_was_open_are_the_runs(
    before: list[str], made: list[str], closed: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        manifest = RunManifest(run)
        manifest.begin()
        for path in before:
            (run / "base" / path).parent.mkdir(parents=True, exist_ok=True)
            (run / "base" / path).write_text("mine")
        manifest.open("base")
        for path in made:
            (run / "base" / path).parent.mkdir(parents=True, exist_ok=True)
            (run / "base" / path).write_text("made")
        if closed:
            manifest.close("base")
        assert {path.relative_to(run / "base").as_posix() for path in remove(run)} == set(before)
        assert set(_tree(run / "base") if run.exists() else {}) == set(before)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "plot.png", "deep/notes.md", "eval.py", "Makefile", "a.csv"])
def test_what_a_person_puts_into_a_folder_while_its_stage_runs_stays_a_persons(
    tmp_path: Path, name: str, closed: bool
) -> None:
    manifest = RunManifest(tmp_path)
    manifest.begin()
    manifest.open("sft")
    for path in ("sft/summary.json", f"sft/{name}"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    if closed:
        manifest.close("sft")
    assert remove(tmp_path) == [tmp_path / "sft" / name]


def test_what_lay_in_a_stages_place_before_it_ran_stays_a_persons_when_it_is_set_aside(tmp_path: Path) -> None:
    RunManifest(tmp_path).begin()
    for _ in range(3):
        (tmp_path / "probes").mkdir()
        (tmp_path / "probes" / "notes.json").write_text("mine")
        set_aside(tmp_path, "probes")
    assert {path.name for path in remove(tmp_path)} == {"notes.json"} and len(list(tmp_path.rglob("*.json"))) == 3


def test_a_run_of_an_earlier_release_owns_its_outputs_after_it_went_on(done: Run) -> None:
    (done.folder / "manifest.jsonl").unlink()
    (done.folder / "base" / "notes.txt").write_text("mine")
    (done.folder / "photos").mkdir()
    (done.folder / "photos" / "a.json").write_text("mine")
    RunManifest(done.folder).begin()
    kept = remove(done.folder)
    assert sorted(path.name for path in kept) == ["a.json", "notes.txt"]
    assert set(_tree(done.folder)) == {"base/notes.txt", "photos/a.json"}


DAMAGED = [
    '{"folder": "base", "moved_to": []}', '{"folder": "base", "files": null}', '{"folder": "base", "files": [[]]}',
    '{"folder": "base", "files": "made.json"}', '{"folder": "base", "open": true, "foreign": [1]}', '{"folder": []}', "[]", "\x00",
]  # fmt: skip


def test_a_damaged_line_of_a_manifest_counts_for_nothing(done: Run) -> None:
    before = split_owned(done.folder)
    for line in DAMAGED:
        with (done.folder / "manifest.jsonl").open("a") as file:
            file.write(line + "\n")
        assert split_owned(done.folder) == before, line


def test_a_manifest_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.jsonl")
    assert RunManifest(tmp_path).folders == {} and not is_run_directory(tmp_path)


STATE = ["lock", "manifest.jsonl", "ledger.jsonl", "events.jsonl", "recipe.toml", "machine.json", "stages.json"]


def test_no_file_of_a_run_directory_is_written_through_a_link(done: Run, tmp_path: Path) -> None:
    for name in STATE:
        home, place = tmp_path / "home.txt", done.folder / name
        before = place.read_text()
        home.write_text(before)
        place.unlink()
        place.symlink_to(home)
        with pytest.raises(NotARunDirectory, match=f"{name} is a link or no regular file"):
            done.execute(["base"], view=False)
        for dry_run in (True, False):
            with pytest.raises(CleanError, match="is no run directory"):
                clean([done.folder], dry_run=dry_run, yes=True)
        assert home.read_text() == before and place.is_symlink()
        place.unlink()
        place.write_text(before)


@pytest.mark.parametrize("text", ["a note\n", "9" * 100])
def test_a_persons_file_that_is_called_lock_is_kept(done: Run, recipe: Recipe, tmp_path: Path, text: str) -> None:
    (tmp_path / "own").mkdir()
    for folder in (tmp_path / "own", done.folder):
        (folder / "lock").write_text(text)
        with pytest.raises(NotALock, match="lock is a link, no regular file, or holds something that no run wrote"):
            RunLock(folder).__enter__()
        assert holder(folder) is None
    with pytest.raises(NotARunDirectory, match="holds lock and is no run directory"):
        Run(recipe, tmp_path / "own", (_stage("base"),)).execute(["base"], view=False)
    clean([done.folder], yes=True)
    assert (tmp_path / "own" / "lock").read_text() == text and _tree(done.folder) == {"lock": text}


def test_a_look_at_what_would_be_removed_writes_nothing(done: Run) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in done.folder.rglob("*")}
    clean([done.folder], dry_run=True)
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in done.folder.rglob("*")}


ODD_NAMES = ["../x", "/tmp/x", "a/b", "..", ".", ".hidden", "-rf", "~", "a\\b", "a\nb", "a\0b", "x" * 101]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_runs_name_stays_below_runs(name: str) -> None:
    with pytest.raises(RecipeError, match="run.name.*no name for a folder below runs/"):
        read_recipe([find_recipe("ci")], [f"run.name={json.dumps(name)}"])


@pytest.mark.parametrize("name", ["", "laptop", "a.b", "Über-lauf_2", "x" * 100])
def test_ordinary_names_are_taken(name: str) -> None:
    assert RunSettings(name=name).name == name
