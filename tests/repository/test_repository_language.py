"""Help texts are sentences that a stranger understands, and a class name belongs to one class."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from etude.cli.main import app
from etude.cli.settings_command import SettingsCommand

_spec = importlib.util.spec_from_file_location("repository_shape", Path(__file__).with_name("shape.py"))
assert _spec is not None and _spec.loader is not None
shape = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = shape
_spec.loader.exec_module(shape)

# A help text that begins so is a fragment of a sentence ("Of sampling.", "Whose exercises.").
FRAGMENT = re.compile(
    r"^(?:[a-z]|(?:Of|Whose|Who|Which|What|Where|How|As|At|In|So|Also|With|Without|By|Then|Its|Just|E\.g|Default)\b)"
)


def help_texts(command: Any, path: str, context: Any) -> Iterator[tuple[str, str]]:
    """(verb or option, help text) of a command and of all its verbs. Hidden settings count, as --print-config shows them; other hidden ones don't."""
    yield path, command.help or ""
    for parameter in command.params:
        if not getattr(parameter, "hidden", False) or isinstance(command, SettingsCommand):
            yield f"{path} {max(parameter.opts, key=len)}", getattr(parameter, "help", None) or ""
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from help_texts(found, f"{path} {name}", context)


def all_help() -> list[tuple[str, str]]:
    command = typer.main.get_command(app)
    context = command.context_class(command)
    return [(where, " ".join(text.split())) for where, text in help_texts(command, "etude", context)]


@pytest.mark.parametrize(
    ("text", "fragment"), [("Of sampling.", True), ("Whose exercises.", True), ("Offer it.", False)]
)
def test_fragments_differ_from_sentences(text: str, fragment: bool) -> None:
    assert bool(FRAGMENT.match(text)) is fragment


def test_every_help_text_is_a_full_sentence() -> None:
    texts = all_help()
    assert len(texts) > 500
    wrong = [
        f"{where}: {text!r}" for where, text in texts if FRAGMENT.match(text) or not re.search(r"[.)]$|\.\.\.$", text)
    ]
    assert wrong == []


def test_no_help_text_has_a_banned_word() -> None:
    assert [f"{where}: {text!r}" for where, text in all_help() if shape.BANNED_WORDS.search(text)] == []


PAGES = [
    *(shape.ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")),
    *(shape.ROOT / "docs").rglob("*.md"),
]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(shape.ROOT)))
def test_no_page_has_a_banned_word_outside_code(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [line for line in prose.splitlines() if shape.BANNED_WORDS.search(line)] == []


def test_no_docstring_or_comment_has_a_banned_word() -> None:
    found = [
        f"{path.relative_to(shape.ROOT)}:{number}: {line.strip()}"
        for path in [
            *shape.paths().values(),
            *(path for folder in ("tests", "benchmarks") for path in sorted((shape.ROOT / folder).rglob("*.py"))),
        ]
        if shape.BANNED_WORDS.search(path.read_text(encoding="utf-8"))  # reading is fast, parsing is not
        for number, line in shape.prose(path).items()
        if shape.BANNED_WORDS.search(line)
    ]
    assert found == []


def test_banned_words_in_benchmarks_become_no_more() -> None:
    """These 3 are keys and names that committed results hold: `steps told` and twice `trained-not-told`. The number only falls."""
    assert shape.banned_words(shape.ROOT / "benchmarks").total() <= 3


def test_prose_is_docstrings_and_comments_without_code(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""First line,\nsecond `code`."""\nx = "no prose"  # a comment\n')
    assert shape.prose(file) == {1: '"""First line,', 2: 'second ."""', 3: "# a comment"}


def test_no_class_name_is_used_twice() -> None:
    assert {name: places for name, places in shape.classes().items() if len(places) > 1} == {}
