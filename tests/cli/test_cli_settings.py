"""Verbs with many options take them from a settings file and from --set, and print a file that gives the same settings again."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import typer
from here import Here
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.harness.preset_names import PRESET_NAMES
from etude.cli.main import app
from etude.cli.settings_command import SettingsCommand
from etude.cli.settings_file import is_list

ROOT: Any = typer.main.get_command(app)
MOST_SHOWN = 12  # with --config, --set, --print-config, --json and --dry-run


def verbs(command: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from verbs(inner, (*words, name))
        else:
            yield (*words, name), inner


VERBS = dict(verbs())
LONG = {words: command for words, command in VERBS.items() if isinstance(command, SettingsCommand)}
BENCH = LONG["bench", "run"]


def parsed(command: Any, *words: str) -> dict[str, Any]:
    return command.make_context("verb", list(words)).params


def printed(command: Any, *words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(typer.Exit):
        command.make_context("verb", ["--print-config", *words])
    return out.getvalue()


def refusal(command: Any, *words: str) -> str:
    with pytest.raises(typer.BadParameter) as found:
        command.make_context("verb", list(words))
    return found.value.message


def test_every_verb_with_many_options_has_settings_and_a_short_help() -> None:
    for words, command in VERBS.items():
        options = [one for one in command.params if one.param_type_name == "option"]
        if words[0] != "agent":  # which has a settings file of the person
            assert len(options) <= 12 or words in LONG, words
    for words, command in LONG.items():
        shown = [
            one.opts[0]
            for one in command.params
            if one.param_type_name == "option" and not getattr(one, "hidden", False)
        ]
        assert len(shown) <= MOST_SHOWN and {"--config", "--set", "--print-config"} <= set(shown), (words, shown)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: text.strip()
)


def words_of(kind: Any, info: Any) -> st.SearchStrategy[str]:
    """Values of an option as they are typed."""
    least, most = getattr(info, "min", None), getattr(info, "max", None)
    if kind is int:
        return st.integers(least if least is not None else -9, most if most is not None else 99_999).map(str)
    if kind is float:
        return st.floats(least if least is not None else -9.0, most if most is not None else 1e9).map(repr)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if isinstance(kind, type) and hasattr(kind, "__members__"):
        return st.sampled_from([one.value for one in kind])  # type: ignore[attr-defined]
    if kind is datetime:
        return st.datetimes(datetime(1970, 1, 2), datetime(2099, 1, 1)).map(
            lambda d: d.strftime((info.formats or ["%Y-%m-%dT%H:%M:%S"])[0])
        )
    return TEXTS


@st.composite
def lines(draw: st.DrawFn, command: Any) -> list[str]:
    """A command line with what the verb requires, and any of its other settings."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in command.settings.values():
        if not parameter.required and draw(st.booleans()):
            continue
        if "--set" in parameter.opts:
            options += ["--set", f"bench.seed={draw(st.integers(0, 9))}"]
            continue
        kind = parameter.type_descriptor.annotation
        if kind is bool:
            options.append(parameter.opts[0])
            continue
        element = get_args(kind)[0] if get_origin(kind) is list else kind
        one = words_of(element, parameter.type_descriptor.parameter_info)
        if "--preset" in parameter.opts:
            one = st.sampled_from([*PRESET_NAMES, "my_package.presets:mine"])
        values = draw(st.lists(one, min_size=1, max_size=3)) if is_list(parameter) else [draw(one)]
        if parameter.param_type_name == "argument":
            arguments += values
        else:
            options += [f"{max(parameter.opts, key=len)}={value}" for value in values]
    return [*options, *(["--", *arguments] if arguments else [])]


@pytest.mark.sample(4)
@pytest.mark.parametrize("words", LONG, ids=" ".join)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_printed_settings_file_gives_the_same_settings(words: tuple[str, ...], data: Any, tmp_path: Path) -> None:
    command = LONG[words]
    line = data.draw(lines(command))
    file = tmp_path / "settings.toml"
    file.write_text(printed(command, *line), encoding="utf-8")
    assert parsed(command, "--config", str(file)) == parsed(command, *line)
    assert printed(command, "--config", str(file)).rstrip("\n") == file.read_text(encoding="utf-8").rstrip("\n")


def test_an_option_counts_before_set_and_set_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('suites = ["ours"]\npasses = 2\nseed = 3\nconcurrency = 9\npolicy = ["nop"]\narms = true\n')
    found = parsed(
        BENCH, "--config", str(file), "--set", "passes=4", "--set", "seed=5", "--passes", "6", "--policy", "expert"
    )
    assert (found["passes"], found["seed"], found["concurrency"], found["timeout"]) == (6, 5, 9, 300.0)
    assert (found["policies"], found["suites"], found["arms"]) == (["expert"], ["ours"], True)
    assert parsed(BENCH, "--config", str(file), "theirs")["suites"] == ["theirs"]
    assert parsed(BENCH, "--config", str(file), "--passes", "1")["passes"] == 1  # as the default, but given


def test_a_dotted_key_of_set_goes_to_the_recipe_and_another_one_to_the_verb(tmp_path: Path) -> None:
    found = parsed(
        BENCH, "ours", "--set", "bench.seed=3", "--set", "policy=a=http://x/v1#m", "--set", 'task=["a", "b"]'
    )
    assert (found["overrides"], found["policies"], found["task"]) == (["bench.seed=3"], ["a=http://x/v1#m"], ["a", "b"])
    file = tmp_path / "mine.toml"
    file.write_text('set = ["bench.seed=1"]\n')
    assert parsed(BENCH, "ours", "--config", str(file), "--set", "bench.seed=2")["overrides"] == [
        "bench.seed=1", "bench.seed=2",
    ]  # fmt: skip
    assert parsed(BENCH, "ours", "--set", "passes=2")["overrides"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = 1\npases = 2\n", "FILE:2: there is no setting 'pases'; did you mean passes?"),
        (
            "seed = 1\nnumber_of_attempts = 2\n",
            "FILE:2: there is no setting 'number_of_attempts'; --print-config lists",
        ),
        ("json = true\n", "FILE:1: there is no setting 'json'"),
        ('passes = "many"\n', 'FILE:1: passes = "many" must be a whole number'),
        ("passes = true\n", "FILE:1: passes = true must be a whole number"),
        ("passes = 1.5\n", "FILE:1: passes = 1.5 must be a whole number"),
        ('policy = "nop"\n', 'FILE:1: policy = "nop" must be a list of a text'),
        ("arms = 1\n", "FILE:1: arms = 1 must be true or false"),
        ("out = 3\n", "FILE:1: out = 3 must be a text"),
        ("[seed]\nx = 1\n", 'FILE:1: seed = {"x": 1} must be a whole number'),
        ("passes = 0\n", "FILE: passes = 0: "),
        ('preset = "huge"\n', "FILE: preset = 'huge': "),
        ('out = " "\n', "FILE: out = ' ': the path is empty"),
        ("passes = \n", "FILE is no TOML: "),
        ("\xff", "FILE is no TOML: "),
    ],
)
def test_an_error_of_a_settings_file_names_file_line_key_and_value(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(text.encode("latin-1"))
    assert message.replace("FILE", str(file)) in refusal(BENCH, "ours", "--config", str(file))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("passes", "--set passes: give KEY=VALUE"),
        ("pases=2", "--set pases=2: there is no setting 'pases'; did you mean passes?"),
        ("passes=many", '--set passes=many: passes = "many" must be a whole number'),
        ("passes=0", "--set passes=0: passes = 0: "),
        ("out=", "the path is empty"),
    ],
)
def test_an_error_of_set_names_the_word_and_the_value(word: str, message: str) -> None:
    assert message in refusal(BENCH, "ours", "--set", word)


def test_a_settings_file_that_is_not_there_is_an_error_and_nothing_is_written(here: Here, tmp_path: Path) -> None:
    done = here("bench", "run", "exercises", "--policy", "nop", "--config", "absent.toml", "--out", "results")
    assert done.returncode == 2 and "--config absent.toml can't be read: No such file" in done.stderr
    done = here("bench", "run", "exercises", "--set", "pases=2", "--out", "results")
    assert done.returncode == 2 and "did you mean passes?" in done.stderr and not list(tmp_path.iterdir())


def test_a_hidden_option_works_and_the_help_says_where_it_is(here: Here) -> None:
    help_text = " ".join(here("bench", "run", "--help").stdout.replace("│", " ").split())
    assert "--price-cached" not in help_text and "--passes" in help_text
    more = sum(getattr(one, "hidden", False) for one in BENCH.params if one.param_type_name == "option")
    sentence = f"{more} more settings: see `etude bench run --print-config`, and set them with --config or --set."
    assert sentence in help_text
    assert parsed(BENCH, "ours", "--price-cached", "0.5")["price_cached"] == 0.5


def test_a_run_from_a_settings_file_is_the_run_with_options(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'suites = ["exercises"]\npolicy = ["nop"]\nonly = true\ntasks = 10\npasses = 2\n'
    )
    from_file = here("bench", "run", "--config", "mine.toml", "--dry-run", "--json")
    typed = here(
        "bench", "run", "exercises", "-p", "nop", "--only", "--tasks", "10", "--passes", "2", "--dry-run", "--json"
    )
    assert from_file.returncode == 0 and from_file.stdout == typed.stdout and '"attempts": 20' in typed.stdout


def test_a_settings_file_can_not_be_printed_as_json() -> None:
    assert refusal(BENCH, "ours", "--print-config", "--json") == "--print-config prints a TOML file: leave out --json"


def test_the_recipe_key_of_the_seed_is_refused_where_the_verb_has_its_own(here: Here, tmp_path: Path) -> None:
    done = here("bench", "run", "exercises", "--policy", "nop", "--set", "bench.seed=3", "--out", "results")
    assert done.returncode == 1 and "the seed of a benchmark run is --seed N" in done.stderr
    assert not list(tmp_path.iterdir())


def test_installing_can_be_planned_without_doing_it(here: Here, tmp_path: Path) -> None:
    (tmp_path / "projects.toml").write_text('[[projects]]\nname = "six"\nversion = "1.16.0"\nkind = "sdist"\n')
    done = here("tasks", "install", "--projects", "projects.toml", "--dry-run")
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (0, ["projects.toml"]), done
    assert "would install 1 projects with rules, 2 at a time\n  six 1.16.0" in done.stdout
