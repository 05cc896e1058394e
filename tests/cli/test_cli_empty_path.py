"""No verb takes an empty path: it would be the current folder. The command lines are built from the parser itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from etude.cli.answer import give
from etude.cli.main import app
from etude.cli.verbs import takes_path

ROOT: Any = typer.main.get_command(app)
# Strings whose help speaks of a folder, a file or a store and that name something else.
NO_PATHS = {"--category", "--difficulty", "--generator", "--image", "--project", "--resume", "--test-command"}
REFUSAL = "the path is empty; name a file or a folder, or . for the current folder"


def commands(command: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from commands(inner, (*words, name))
        else:
            yield (*words, name), inner


COMMANDS = dict(commands())
PATHS = [(words, one) for words, command in COMMANDS.items() for one in command.params if takes_path(one)]


def lines(command: Any, parameter: Any, empty: str) -> Iterator[list[str]]:
    """Every command line that names an empty value for the parameter, in each way to write it."""
    if parameter.param_type_name == "argument":
        before = [one for one in command.params if one.param_type_name == "argument"]
        yield ["--", *["x" for one in before[: before.index(parameter)] for _ in range(abs(one.nargs))], empty]
        if parameter.nargs == -1:
            yield ["--", *["x" for one in before[: before.index(parameter)]], "x", empty]
        return
    for name in parameter.opts:
        for at in range(parameter.nargs):
            yield [name, *[empty if place == at else "x" for place in range(parameter.nargs)]]
        if parameter.nargs == 1 and name.startswith("--"):
            yield [f"{name}={empty}"]
        if parameter.multiple:
            yield [name, "x", name, empty]


@pytest.mark.parametrize(("words", "parameter"), PATHS, ids=[f"{' '.join(w)}: {p.opts[0]}" for w, p in PATHS])
def test_an_empty_path_is_a_usage_error_before_anything_runs(
    words: tuple[str, ...], parameter: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    for empty in ("", " ", "\n\t"):
        for line in lines(COMMANDS[words], parameter, empty):
            code = give(lambda line=line: COMMANDS[words].make_context(words[-1], line), as_json=False)
            said = capfd.readouterr().err
            assert (
                code == 2 and REFUSAL in said and any(name in said for name in (*parameter.opts, parameter.metavar))
            ), (line, said)


def test_every_parameter_that_is_a_path_or_names_one_is_known_as_a_path() -> None:
    """One string can hold a path as well; its help then speaks of a folder, a file or a directory."""
    for words, command in COMMANDS.items():
        for one in command.params:
            annotation = getattr(getattr(one, "type_descriptor", None), "annotation", None)
            if annotation is Path or Path in get_args(annotation):
                assert takes_path(one), (words, one.opts)
            if annotation is str and re.search(r"\b([Ff]older|[Ff]ile|[Dd]irectory|[Ss]tore)\b", one.help or ""):
                assert takes_path(one) or one.opts[0] in NO_PATHS, (words, one.opts, one.help)


def test_a_path_that_is_not_empty_and_a_default_are_taken() -> None:
    command = COMMANDS["tasks", "import", "harbor"]
    assert command.make_context("harbor", ["x", "--out", "."]).params["out"] == Path(".")
    assert command.make_context("harbor", ["x"]).params["out"] == Path("tasks/harbor")


def test_a_verb_with_an_empty_path_writes_nothing_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["tasks", "import", "exercises", "--out", ""]
    assert give(lambda: app(line, standalone_mode=False), as_json=False, words=line) == 2
    assert REFUSAL in capfd.readouterr().err and os.listdir(tmp_path) == []
