"""Python is distinguished from what only calls itself so, without parsing every file of a project that has shown what it is."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.corpus.judge import python
from etude.learn.corpus.judge.python import FIRST_FILES, PythonCheck, parses, suspicious

GOOD = "def add(a, b):\n    return a + b\n"
BAD = "def f(:\n"
TWO = {
    "print": "def f(x):\n    print 'value', x\n",
    "print name": "print x\n",
    "except": "try:\n    pass\nexcept ValueError, error:\n    pass\n",
    "except several": "try:\n    pass\nexcept (A, B), error:\n    pass\n",
    "raise": "raise ValueError, 'no'\n",
    "exec": "exec 'x = 1'\n",
    "octal": "mode = 0755\n",
    "raw": "text = ur'a'\n",
    "unequal": "if a <> b:\n    pass\n",
    "merge": "<<<<<<< HEAD\nx = 1\n",
    "template": "{% if x %}\nx = 1\n{% endif %}\n",
    "open string": 'TEXT = """\nand no more\n',
}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that went to the parser."""
    seen: list[str] = []
    real = python.parses
    monkeypatch.setattr(python, "parses", lambda text: seen.append(text) or real(text))
    return seen


def trusted() -> PythonCheck:
    check = PythonCheck()
    assert all(check.accepts(f"{GOOD}# {i}\n") for i in range(FIRST_FILES))
    return check


def test_the_first_files_are_parsed_and_the_rest_are_not(parsed: list[str]) -> None:
    check = trusted()
    assert len(parsed) == FIRST_FILES
    assert check.accepts(GOOD) and len(parsed) == FIRST_FILES


@pytest.mark.parametrize("name", TWO)
def test_what_python_3_does_not_write_is_parsed_and_refused_also_in_a_trusted_project(name: str) -> None:
    assert not parses(TWO[name]) and suspicious(TWO[name])
    assert not trusted().accepts(TWO[name])


def test_one_file_that_fails_and_every_file_is_parsed(parsed: list[str]) -> None:
    check = trusted()
    assert not check.accepts(TWO["print"])
    before = len(parsed)
    assert not check.accepts(BAD) and check.accepts(GOOD) and len(parsed) == before + 2


@given(st.lists(st.sampled_from([GOOD, BAD, *TWO.values()]), max_size=FIRST_FILES))
def test_a_small_project_is_judged_by_the_parser_alone(texts: list[str]) -> None:
    check = PythonCheck()
    assert [check.accepts(text) for text in texts] == [parses(text) for text in texts]


def test_a_project_of_python_2_is_refused_from_its_first_file_to_its_last() -> None:
    check = PythonCheck()
    files = [f"{text}# {i}\n" for i in range(5) for text in TWO.values()]
    assert not any(check.accepts(text) for text in files)


def test_a_sign_in_a_string_costs_a_parse_and_nothing_else() -> None:
    text = '"""Use it so:\n\n    print "hello"\n"""\n'
    assert suspicious(text) and trusted().accepts(text)
    assert not suspicious("print(x)\n") and not suspicious("\n".join(keyword.kwlist))
