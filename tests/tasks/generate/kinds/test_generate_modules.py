"""Which test files are about which module of a Python project."""

from __future__ import annotations

from etude.tasks.environment.environment import Environment
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.generators.kinds import modules

PACKAGE = {
    "thing/__init__.py": "from thing.parts import build, parse\n\n__all__ = ['build', 'parse']\n",
    "thing/parts.py": "def build(a):\n    return a\n\n\ndef parse(a):\n    return a\n",
    "thing/words.py": "class Word:\n    pass\n",
}


def about(**tests: str) -> dict[str, tuple[str, ...]]:
    files = {**PACKAGE, **{f"tests/{name}.py": text for name, text in tests.items()}}
    return {
        place.path: place.tests
        for place in modules.tested_modules(InstalledProject(Environment("thing", "1"), files, Baseline(frozenset())))
    }


def test_what_only_passes_names_on_is_not_what_tests_are_about() -> None:
    assert about(test_all="import thing\n\nthing.build(thing.parse(1))\n") == {"thing/parts.py": ("tests/test_all.py",)}
    assert about(test_thing="import thing\n\nthing.Word()\n") == {"thing/words.py": ("tests/test_thing.py",)}


def test_a_test_file_named_after_a_module_is_about_it_whatever_it_uses() -> None:
    assert about(test_words="from thing import build\nbuild(1)\n") == {"thing/words.py": ("tests/test_words.py",)}


def test_the_one_named_after_the_module_comes_first_then_the_longest() -> None:
    long = "import thing\nthing.build(1)\n"
    found = about(test_api="import thing\nthing.build\n", test_more=long * 3, test_parts="x = 1\n")
    assert found == {"thing/parts.py": ("tests/test_parts.py", "tests/test_more.py", "tests/test_api.py")}
