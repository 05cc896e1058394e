"""Suites in folders: read as they were frozen, or refused by name; prices; versions."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.errors import NewerSuite, SuiteError, TaskChanged, UnknownSuite
from etude.evaluate.bench.prices import Price, Prices, entry_for, priced_by, read_prices, shipped_prices, write_prices
from etude.evaluate.bench.suites import lock
from etude.evaluate.bench.suites.find import find_folder
from etude.evaluate.bench.suites.folder import FINGERPRINTS, FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.evaluate.bench.suites.suite import label
from etude.evaluate.bench.suites.task_size import medians, shape_of
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.suites import open_suite
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.task import Task

DAY = date(2026, 11, 1)


def some_tasks(count: int = 3) -> list[Task]:
    source = ExerciseSource(Recipe().exercises)
    return [source.task(task_id) for task_id in source.ids("heldout")[:count]]


def described(version: str = "1", **more: object) -> SuiteManifest:
    return SuiteManifest.model_validate({"name": "mine", "version": version, "released": DAY, **more})


@pytest.fixture
def suite(tmp_path: Path) -> FolderSuite:
    return freeze(tmp_path / "suites" / "mine", described(harness={"max_turns": 7}), some_tasks())


def test_what_was_frozen_is_read_back_in_its_order(suite: FolderSuite):
    tasks = some_tasks()
    assert label(suite) == "mine@1" and list(suite.ids) == [task.id for task in tasks]
    assert [suite.task(task.id) for task in tasks] == tasks
    assert suite.manifest.apply_limits(HarnessSettings()).max_turns == 7
    assert suite.manifest.changelog[0].change == "3 tasks" and (suite.root / FINGERPRINTS).stat().st_size > 0
    assert FolderSuite(suite.root).digest == suite.digest


def test_a_changed_task_is_refused_by_name_and_the_others_still_read(suite: FolderSuite):
    first, second = suite.ids[:2]
    place = lock.folder_of(suite.root, first) / "instruction.md"
    place.write_text(place.read_text() + "and hurry\n")
    again = FolderSuite(suite.root)
    with pytest.raises(TaskChanged, match=first):
        again.task(first)
    with pytest.raises(TaskChanged, match=first):
        again.verify()
    assert again.task(second).id == second


def test_a_file_that_becomes_a_program_is_a_change_too(suite: FolderSuite):
    (lock.folder_of(suite.root, suite.ids[0]) / "instruction.md").chmod(0o755)
    with pytest.raises(TaskChanged):
        FolderSuite(suite.root).verify()


def test_missing_and_added_tasks_are_named(suite: FolderSuite):
    place = lock.folder_of(suite.root, suite.ids[0])
    place.rename(suite.root / "tasks" / "renamed")
    with pytest.raises(SuiteError, match=f"task {suite.ids[0]!r} is gone"):
        FolderSuite(suite.root)
    (suite.root / "tasks" / "renamed").rename(place)
    (suite.root / "tasks" / "stray").mkdir()
    with pytest.raises(SuiteError, match="stray is not in tasks.lock"):
        FolderSuite(suite.root)


def test_a_missing_file_a_later_schema_and_a_wrong_key_are_reported(suite: FolderSuite):
    path = suite.root / "suite.toml"
    text = path.read_text()
    path.write_text(text.replace("schema = 1", "schema = 2"))
    with pytest.raises(NewerSuite, match="schema 2, this program reads up to 1"):
        FolderSuite(suite.root)
    path.write_text(text.replace("max_turns = 7", "max_turnz = 7"))
    with pytest.raises(SuiteError, match="max_turnz"):
        FolderSuite(suite.root)
    path.write_text(text)
    (suite.root / "tasks.lock").unlink()
    with pytest.raises(SuiteError, match="never frozen"):
        FolderSuite(suite.root)


def test_an_unknown_suite_is_answered_with_near_names(suite: FolderSuite):
    shelf = suite.root.parent
    assert find_folder("mine", shelf) == suite.root == find_folder(str(suite.root))
    with pytest.raises(UnknownSuite, match="did you mean mine?"):
        find_folder("nine", shelf)
    with pytest.raises(UnknownSuite, match="did you mean exercises?"):
        find_folder("exercise", shelf)
    with pytest.raises(UnknownSuite, match="there are exercises, real, targeted-.*, mine"):
        find_folder("xyzzy", shelf)


def test_a_frozen_suite_is_not_written_over_and_nothing_half_made_stays(suite: FolderSuite):
    with pytest.raises(SuiteError, match="is frozen"):
        freeze(suite.root, described("2"), some_tasks())
    with pytest.raises(SuiteError, match="share a directory"):
        freeze(suite.root.parent / "other", described(), [*some_tasks(1), *some_tasks(1)])
    assert [path.name for path in suite.root.parent.iterdir()] == ["mine"]


def test_a_new_version_tells_what_differs_and_has_another_digest(suite: FolderSuite, tmp_path: Path):
    tasks = some_tasks(4)[1:]
    second = freeze(tmp_path / "second", described("2"), tasks, after=suite)
    first, earlier = second.manifest.changelog
    assert first.change == "3 tasks; since 1: 1 added, 1 removed" and earlier == suite.manifest.changelog[0]
    assert second.digest != suite.digest
    with pytest.raises(SuiteError, match="version 1 already"):
        freeze(tmp_path / "third", described("1"), tasks, after=suite)


def test_words_and_prices_leave_the_digest_alone_limits_do_not(suite: FolderSuite):
    path = suite.root / "suite.toml"
    before = path.read_text()
    path.write_text(before.replace('name = "mine"', 'name = "mine"\ndescription = "a better text"'))
    assert FolderSuite(suite.root).digest == suite.digest
    path.write_text(before.replace("max_turns = 7", "max_turns = 8"))
    assert FolderSuite(suite.root).digest != suite.digest


def test_the_latest_price_in_force_of_the_most_telling_glob_counts(tmp_path: Path):
    rows = (
        Price("*", date(2026, 1, 1), 9, 9, 9, 9),
        Price("fast-*", date(2026, 1, 1), 1, 0.1, 1.25, 5),
        Price("fast-*", date(2026, 6, 1), 0.5, 0.05, 0.6, 2.5),
    )
    write_prices(tmp_path / "prices.toml", Prices(rows))
    prices = read_prices(tmp_path / "prices.toml")
    assert prices.entries == rows
    assert [prices.at("fast-2", date(2026, month, 1)) for month in (5, 6)] == [rows[1], rows[2]]
    assert prices.at("slow", DAY) == rows[0] and prices.at("slow", date(2025, 1, 1)) is None
    assert rows[1].dollars(1_000_000, 400_000, 200_000, 100_000) == pytest.approx(0.4 + 0.04 + 0.25 + 0.5)
    with pytest.raises(ValueError, match="can't hold"):
        rows[1].dollars(10, 8, 8, 0)


def test_every_price_that_comes_with_the_program_has_a_day_a_source_and_no_wildcard_for_all():
    rows = shipped_prices().entries
    assert len(rows) >= 10 and len({(row.model, row.since) for row in rows}) == len(rows)
    for row in rows:
        assert row.source and date(2026, 1, 1) <= row.since <= DAY and row.model.strip("*?[]"), row
        assert 0 < row.cache_read <= row.input <= row.output and row.cache_write >= row.input, row


def test_the_programs_prices_count_where_a_suite_names_none_and_are_not_written_into_it(tmp_path: Path):
    own = Price("claude-opus-5", date(2026, 1, 1), 1, 1, 1, 1, "a contract")
    suite = freeze(tmp_path / "s", described(), some_tasks(1), price_list=Prices((own,)))
    assert suite.prices.at("claude-opus-5", DAY) == own
    other = suite.prices.at("claude-sonnet-5", DAY)
    assert other is not None and (other.input, other.output) == (2, 10)
    assert suite.prices.at("a-model-of-my-own", DAY) is None and suite.prices.entries == (own,)
    assert open_suite("real", Recipe(), tasks=1).prices.at("claude-sonnet-5", DAY) == other


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_the_entry_that_an_error_shows_is_a_list_that_can_be_read(tmp_path_factory: pytest.TempPathFactory, model: str):
    file = tmp_path_factory.mktemp("p") / "prices.toml"
    file.write_text(entry_for(model, DAY), encoding="utf-8")
    assert read_prices(file).entries == (Price(model, DAY, 0.0, 0.0, 0.0, 0.0),)
    assert "\n" not in priced_by(model) and "--prices FILE" in priced_by(model)


@pytest.mark.parametrize(
    "line", ["input = 1.0\nsource = 7", "input = inf", "input = -1.0", 'input = "1"', "inputs = 1.0", "input = true"]
)
def test_a_wrong_price_is_named_with_its_place(tmp_path: Path, line: str):
    (tmp_path / "prices.toml").write_text(
        f'[[prices]]\nmodel = "m"\nfrom = 2026-01-01\ncache_read = 1\ncache_write = 1\noutput = 1\n{line}\n'
    )
    with pytest.raises(SuiteError, match="entry 1.*(input|source)"):
        read_prices(tmp_path / "prices.toml")


def test_an_entry_that_lacks_a_field_is_answered_with_an_example(tmp_path: Path):
    (tmp_path / "prices.toml").write_text('[[prices]]\nmodel = "m"\ninput = 1\noutput = 1\n')
    with pytest.raises(
        SuiteError, match=r"missing or unknown: .*cache_read.*an example.*prices = \[\{model = \"NAME\", from = "
    ):
        read_prices(tmp_path / "prices.toml")


def test_rubrics_are_found_by_task_then_category_then_default(suite: FolderSuite):
    task = suite.task(suite.ids[0])
    folder = suite.root / "rubrics"
    folder.mkdir()
    assert suite.rubric(task.id) is None
    for name in ("default", task.category, lock.folder_of(suite.root, task.id).name):
        (folder / f"{name}.toml").write_text("")
        assert suite.rubric(task.id) == folder / f"{name}.toml"


def test_a_rubric_that_can_not_be_asked_freezes_no_suite_and_is_found_by_verify(suite: FolderSuite, tmp_path: Path):
    with pytest.raises(SuiteError, match="needs at least one"):
        freeze(tmp_path / "other", described(), some_tasks(1), rubrics={"default": 'name = "r"\n'})
    assert not (tmp_path / "other").exists()
    (suite.root / "rubrics").mkdir()
    (suite.root / "rubrics" / "default.toml").write_text("[[criteria]]\nname = 1\n")
    with pytest.raises(SuiteError, match="default.toml, criterion 1"):
        FolderSuite(suite.root).verify()


def test_requirements_lie_where_the_manifest_says(tmp_path: Path):
    (tmp_path / "needs.txt").write_text("x==1\n")
    row = described(environment={"requirements": "needs/of-tests.txt"})
    suite = freeze(tmp_path / "s", row, some_tasks(1), requirements=tmp_path / "needs.txt")
    assert (suite.root / "needs" / "of-tests.txt").read_text() == "x==1\n" and len(suite.digest) == 64
    (suite.root / "needs" / "of-tests.txt").unlink()
    with pytest.raises(SuiteError, match="the suite's digest covers it"):
        assert FolderSuite(suite.root).digest


def test_built_in_suites_have_the_same_face_and_a_digest_of_their_tasks():
    recipe = Recipe()
    first, again = (open_suite("exercises", recipe) for _ in range(2))
    assert label(first) == "exercises@1" and len(first.ids) == 24 and first.digest == again.digest
    assert first.digest != open_suite("exercises", recipe, tasks=30).digest
    assert first.weights and first.task(first.ids[0]).grader in first.graders
    real = open_suite("real", recipe, tasks=4)
    assert len(real.ids) == 4 and len(real.digest) == 64
    with pytest.raises(KeyError, match="real@1 has no task"):
        real.task("absent")


def test_the_shape_of_a_task_is_counted_from_its_reference():
    task = Task("t", "debugging", "session", "fix it", {"a.py": "x\ny\n", "gone.py": "z\n"}, (), "commands")
    task = Task(
        **{**vars(task), "solution": {"a.py": "x\nY\n", "new.py": "1\n2\n"}, "metadata": {"removed": ["gone.py"]}}
    )
    assert vars(shape_of(task)) == {"files": 3, "lines": 5, "prompt_chars": 6}
    assert medians([shape_of(task)])["median_changed_lines"] == 5 and medians([])["median_files"] is None
