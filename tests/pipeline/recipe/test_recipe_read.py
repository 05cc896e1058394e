"""Recipes: composition, strictness, errors that name the key, and a dump that reads back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from etude.pipeline.recipe.document import _type, document
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import (
    RENAMED,
    find_recipe,
    known_keys,
    merge,
    parse_override,
    read_recipe,
    resolved_toml,
)
from etude.pipeline.recipe.recipe import Recipe, block, named_blocks

ROOT = Path(__file__).parents[3]


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def problems(*files: Path, overrides: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        read_recipe(files, overrides)
    return caught.value.problems


def test_later_files_win_key_by_key_and_overrides_win_over_all(tmp_path: Path) -> None:
    first = write(tmp_path, "[rl]\nsteps = 5\ngroup_size = 4\nslots = 9\n", "a.toml")
    second = write(tmp_path, "[rl]\nsteps = 6\ngroup_size = 3\n", "b.toml")
    recipe = read_recipe([first, second], ["rl.group_size=2"])
    assert (recipe.rl.slots, recipe.rl.steps, recipe.rl.group_size) == (9, 6, 2)
    assert recipe.run.name == "b"


def test_one_key_of_a_nested_block_leaves_its_neighbours(tmp_path: Path) -> None:
    default = Recipe().pretrain.long.loop.steps
    recipe = read_recipe([write(tmp_path, "[pretrain.long.loop]\nlog_every = 3\n")])
    assert default is not None and recipe.pretrain.long.loop.steps == default
    assert recipe.pretrain.long.loop.log_every == 3


def test_an_unknown_key_names_file_key_value_and_the_closest_key(tmp_path: Path) -> None:
    file = write(tmp_path, "[rl]\ngroup_sise = 4\n")
    assert problems(file) == [f"{file}: rl.group_sise = 4: there is no such key; did you mean rl.group_size?"]


def test_a_key_in_the_wrong_section_is_led_to_the_right_one(tmp_path: Path) -> None:
    file = write(tmp_path, "[sft]\ngroup_size = 4\n")
    assert problems(file) == [f"{file}: sft.group_size = 4: there is no such key; did you mean rl.group_size?"]


def test_an_unknown_section_is_named(tmp_path: Path) -> None:
    (line,) = problems(write(tmp_path, "[bensch]\ntasks = 4\n"))
    assert "bensch = [...]: there is no such key; did you mean bench?" in line


@pytest.mark.parametrize("text", ["steps = 'many'", "steps = 4.5", "steps = true", "steps = '4'", "steps = [4]"])
def test_a_wrong_type_is_refused_with_file_key_and_value(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, f"[rl]\n{text}\n")
    (line,) = problems(file)
    assert line.startswith(f"{file}: rl.steps = ") and "should be a valid integer" in line


def test_a_value_out_of_bounds_is_refused_and_the_override_is_named() -> None:
    assert problems(overrides=("rl.steps=0",)) == ["--set: rl.steps = 0: should be greater than or equal to 1"]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("model.experts_per_token=100", "--set: model: experts_per_token=100 exceeds experts=8; lower it"),
        ("model.expert_groups=3", "--set: model: experts=8 do not split into expert_groups=3"),
        ("run.name='../x'", "--set: run.name: '../x' is no name for a folder below runs/: take at most 100 letters, "),
    ],
)
def test_values_that_do_not_fit_together_are_named_without_their_whole_section(override: str, line: str) -> None:
    (found,) = problems(overrides=(override,))
    assert found.startswith(line) and "{" not in found and "should be" not in found


def test_each_problem_of_a_recipe_is_reported_at_once(tmp_path: Path) -> None:
    first = write(tmp_path, "[rl]\nsteps = 'x'\n", "a.toml")
    second = write(tmp_path, "[bench]\ntusks = 1\n", "b.toml")
    lines = problems(first, second, overrides=("rl.slots=0",))
    assert [line.split(":")[0] for line in sorted(lines)] == sorted(["--set", str(first), str(second)])


def test_whole_numbers_serve_where_fractions_are_asked_for() -> None:
    assert read_recipe([], ["bench.temperature=1"]).bench.temperature == 1.0


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"[rl", "not TOML"), (b"\xff\xfe\x00", "not TOML"), (None, "no such recipe file")],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    (line,) = problems(path)
    assert str(path) in line and said in line


def test_a_directory_is_no_recipe(tmp_path: Path) -> None:
    assert "directory" in problems(tmp_path)[0]


@pytest.mark.parametrize("text", ["rl.steps", "=4", "rl..steps=4", ""])
def test_an_override_without_key_or_value_says_how_to_write_it(text: str) -> None:
    with pytest.raises(RecipeError, match="section.key=value"):
        parse_override(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a.b=4", 4), ("a.b = [1, 2]", [1, 2]), ("a.b='x'", "x"), ("a.b=qwen3_moe", "qwen3_moe"), ("a.b=x=y", "x=y")],
)
def test_override_values_are_toml_and_names_need_no_quotes(text: str, value: object) -> None:
    assert parse_override(text) == ("a.b", value)


def test_the_resolved_dump_reads_back_as_the_same_recipe(tmp_path: Path) -> None:
    recipe = read_recipe(
        [], ["rl.steps=3", "corpus.library.fingerprints=['/a b', 'c\"d']", "rl.levels={one-bug = 2.0}", "run.name=é"]
    )
    again = read_recipe([write(tmp_path, resolved_toml(recipe))])
    assert again == recipe


names = st.sampled_from(["a", "b", "c"])
tables = st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)


def leaves(value: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    return {k: v for name, child in value.items() for k, v in leaves(child, f"{prefix}.{name}".strip(".")).items()}


@given(st.lists(st.dictionaries(names, tables, max_size=3), min_size=1, max_size=3))
def test_every_leaf_of_a_merge_has_one_origin_and_the_last_file_keeps_all_it_says(
    tmp_path_factory: pytest.TempPathFactory, contents: list[dict[str, object]]
) -> None:
    import tomli_w

    folder = tmp_path_factory.mktemp("recipes")
    files = [write(folder, tomli_w.dumps(c), f"{i}.toml") for i, c in enumerate(contents)]
    merged = merge(files)
    found = {k: v for k, v in leaves(merged.data).items() if k}
    assert {k for k, v in found.items() if v != {}} <= merged.origins.keys()
    last = {k: v for k, v in leaves(contents[-1]).items() if k and v != {}}
    assert all(found[k] == v and merged.origins[k] == str(files[-1]) for k, v in last.items())


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "recipe.md").read_text()
    assert page == document(), "run: python -m etude.pipeline.recipe.document"


@pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])  # of Python 3.13
def test_the_page_names_types_without_their_module(module: str) -> None:
    path = type("Path", (), {"__module__": module})
    assert _type(FieldInfo(annotation=dict[str, path])) == "dict[str, Path]"  # type: ignore[valid-type]


def settings_classes(model: type[BaseModel]) -> list[type[BaseModel]]:
    found = [m for f in model.model_fields.values() if (m := block(f.annotation) or named_blocks(f.annotation))]
    return [*found, *(deeper for m in found for deeper in settings_classes(m))]


def test_every_setting_forbids_unknown_keys_and_describes_itself_in_one_line() -> None:
    for model in settings_classes(Recipe):
        assert model.model_config.get("extra") == "forbid", model
        for name, field in model.model_fields.items():
            assert field.description and "\n" not in field.description, f"{model.__name__}.{name} needs a description"


def test_every_rooms_settings_are_in_the_recipe() -> None:
    """A settings class that no section reaches could not be set by anybody."""
    reached = {base.__name__ for m in settings_classes(Recipe) for base in m.__mro__}
    for file in sorted((ROOT / "src" / "etude").glob("*/settings.py")):
        declared = set(re.findall(r"^class (\w+)\(BaseModel\)", file.read_text(), re.MULTILINE))
        assert declared <= reached, f"{file.parent.name}/settings.py: {declared - reached} missing in recipe.Recipe"


def test_tables_of_named_blocks_are_checked_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[corpus.sources.mine]\nkind = "folder"\npath = "src"\n[corpus.sources.far]\nkind = "sdist"\npackages = ["a"]\n'
    )
    sources = read_recipe([file], ["corpus.sources.far.releases=2"]).corpus.sources
    assert list(sources) == ["mine", "far"] and sources["far"].releases == 2 and sources["far"].packages == ["a"]
    with pytest.raises(RecipeError, match=r"corpus\.sources\.mine\.kind = 'fodler'"):
        read_recipe([file], ["corpus.sources.mine.kind=fodler"])
    with pytest.raises(RecipeError, match="corpus.sources.npm: a source of kind npm needs packages"):
        read_recipe([file], ["corpus.sources.npm.kind=npm"])


def test_the_shipped_recipes_are_valid() -> None:
    lists = {"projects.toml", "monorepos.toml"}  # which projects tasks are made of (docs/tasks.md): no recipe
    for file in sorted((ROOT / "recipes").glob("*.toml")):
        assert file.name in lists or read_recipe([file]).run.name


def test_a_shipped_recipe_is_found_by_name_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("laptop") == find_recipe("recipes/laptop.toml") == ROOT / "recipes" / "laptop.toml"
    with pytest.raises(RecipeError, match="laptop"):
        find_recipe("lptop")


def test_known_keys_reach_into_nested_blocks() -> None:
    assert {"rl", "rl.steps", "rl.length.weights.calls"} <= set(known_keys(Recipe))


def test_a_former_name_of_a_setting_is_read_with_a_notice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = write(tmp_path, '[report]\nbeside = ["mla.json"]\n', "old.toml")
    recipe = read_recipe([old])
    assert recipe.report.comparisons == ["mla.json"]
    assert f"{old}: report.beside is now called report.comparisons" in caplog.text
    assert read_recipe([], ['report.beside=["a.json"]']).report.comparisons == ["a.json"]
    assert "--set: report.beside is now called" in caplog.text


def test_a_former_name_without_a_value_needs_no_notice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_recipe([write(tmp_path, "[report]\nbeside = []\n")]).report.comparisons == []
    assert caplog.text == ""


def test_a_setting_under_both_names_is_refused(tmp_path: Path) -> None:
    both = write(tmp_path, '[report]\nbeside = ["a"]\ncomparisons = ["b"]\n')
    assert problems(both) == [
        f"{both}: report.beside is the former name of report.comparisons, and both are given: remove report.beside"
    ]


def test_every_former_name_leads_to_a_setting_that_exists() -> None:
    known = set(known_keys(Recipe))
    assert all(new in known and old not in known for old, new in RENAMED.items())
