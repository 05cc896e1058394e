"""Lookups: the context alone answers, in one place; wrong ends are others' in the same context; all is a function of files, length and seed."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.lookup import FILLED, HALVINGS, HEADINGS, LookupQuestion, lookup_documents, questions
from etude.learn.corpus.lookup_line import CHOICES, SourceFunction, ask, functions

WORDS = ("alpha", "bravo", "carol", "delta", "eagle", "fable", "grape", "house", "igloo", "joker", "kayak", "lemon")


def count(text: str) -> int:
    """A tokenizer whose tokens are words and marks."""
    return len(re.findall(r"\w+|[^\w\s]|\n", text))


def project(seed: int = 0, size: int = 60) -> list[tuple[str, str]]:
    """A module of functions, some of them methods, and a module of tests that each call one of them."""
    rng = random.Random(seed)
    names = [f"{rng.choice(WORDS)}_{rng.choice(WORDS)}_{n}" for n in range(size)]
    code = [f"def {name}({rng.choice(WORDS)}{n}, other=None):\n    return {n}\n" for n, name in enumerate(names)]
    method = "class Thing:\n    def method_of(self, first, second=2):\n        return first\n"
    tests = [f"def test_case_{n}_works():\n    assert {name}({n}) == {n}\n" for n, name in enumerate(names)]
    return [("pkg/code.py", "\n\n".join([*code, method])), ("tests/test_code.py", "\n\n".join(tests))]


def asked(seed: int = 0, each: int = 6) -> list[LookupQuestion]:
    return questions(project(), count, lengths=(128, 512), depths=(0.0, 0.5, 1.0), each=each, seed=seed)


def test_functions_are_read_with_their_parameters_as_written() -> None:
    text = "class A:\n    @staticmethod\n    def free(a, *, b: int = 3) -> dict[str, int]:\n        '''Doc.'''\n\n    def bound(self, x): pass\n"
    assert list(functions("m.py", text)) == [
        SourceFunction("free", "", "a, *, b: int = 3", "def free(a, *, b: int = 3) -> dict[str, int]:\n    '''Doc.'''"),
        SourceFunction("bound", "self, ", "x", "def bound(self, x): pass"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def none(): pass",
        "def only(self): pass",
        "def stars(*args): pass",
        "def keyword(*, a): pass",
        "def many(\n    a,\n): pass",
        f"def long({', '.join(f'parameter_{n}' for n in range(9))}): pass",
        "async def later(a): pass",
        "def broken(a: pass",
    ],
)
def test_functions_that_cannot_be_looked_up_are_left_out(text: str) -> None:
    assert list(functions("m.py", text)) == []
    assert list(functions("m.js", "def fine(a): pass")) == []


def test_both_kinds_are_asked_at_every_length_and_depth() -> None:
    cells = Counter((q.kind, q.length, q.depth) for q in asked())
    assert set(cells.values()) == {6} and len(cells) == 2 * 2 * 3


def test_the_context_answers_in_one_place_and_offers_every_wrong_end() -> None:
    for question in asked():
        context, _, _ = question.text.partition(HEADINGS[question.kind])
        line = question.line
        assert len({line.answer, *line.others}) == CHOICES
        if question.kind == "definition":
            assert context.count(line.prompt + line.answer) == context.count(line.prompt) == 1
            assert all(other in context for other in line.others)
        else:
            name = line.prompt.removeprefix("covered_by(").removesuffix(", test")
            assert context.count(f"{name}(") == 1 and name not in line.answer
            (definition,) = [part for part in context.split("\n\n") if f"{name}(" in part]
            assert definition.startswith(f"def test{line.answer.removesuffix(')')}(")
            assert all(f"def test{other.removesuffix(')')}(" in context for other in line.others)


def test_a_question_with_its_answer_fits_its_length_and_fills_most_of_it() -> None:
    for question in asked():
        longest = max(map(count, (question.line.answer, *question.line.others)))
        assert FILLED * question.length <= count(question.text) + longest <= question.length


def test_the_answer_lies_at_its_depth() -> None:
    for question in asked():
        context, _, _ = question.text.partition(HEADINGS[question.kind])
        parts = context.split("\n\n")
        name = question.line.prompt.removeprefix("covered_by(").removeprefix("def ").split("(")[0].split(",")[0]
        (place,) = [n for n, part in enumerate(parts) if re.search(rf"\b{name}\b", part)]
        assert place == round(question.depth * (len(parts) - 1))


def test_depths_of_one_target_share_their_company() -> None:
    found: dict[tuple, set[frozenset[str]]] = {}
    for question in asked():
        key = (question.kind, question.length, question.target)
        context, _, _ = question.text.partition(HEADINGS[question.kind])
        found.setdefault(key, set()).add(frozenset(context.split("\n\n")))
    assert all(len(companies) == 1 for companies in found.values())


def test_questions_are_a_function_of_files_and_seed() -> None:
    assert asked() == asked() and asked(seed=1) != asked()


def test_too_little_code_gives_fewer_questions() -> None:
    few = questions(project(size=8), count, lengths=(128, 1024), depths=(0.0,), each=50, seed=0)
    assert {q.length for q in few} == {128}  # eight functions are no context of 1,024 tokens
    assert 0 < len(few) <= 2 * 9


def test_a_test_named_after_the_function_is_not_asked() -> None:
    said = SourceFunction("test_eagle_joker", "", "", "def test_eagle_joker():\n    assert eagle_joker(1)")
    others = [SourceFunction(f"test_{word}", "", "", f"def test_{word}(): pass") for word in WORDS]
    assert ask("test", said, [said, *others], {"eagle_joker"}, random.Random(0)) is None
    silent = SourceFunction("test_birds", "", "", "def test_birds():\n    assert eagle_joker(1)")
    line = ask("test", silent, [silent, *others], {"eagle_joker"}, random.Random(0))
    assert line is not None and str(line) == "covered_by(eagle_joker, test_birds)"


def test_a_name_that_is_elsewhere_too_is_not_asked() -> None:
    context = [SourceFunction(name, "", f"{name}_a", f"def {name}({name}_a): pass") for name in WORDS]
    assert ask("definition", context[0], context, set(), random.Random(0)) is not None
    context[5] = SourceFunction("caller", "", "b", f"def caller(b): {WORDS[0]}(b)")
    assert ask("definition", context[0], context, set(), random.Random(0)) is None


def taught(length: int, seed: int = 0, size: int = 60) -> list[str]:
    return list(lookup_documents(iter(project(size=size)), count, length, seed))


@settings(max_examples=15, deadline=None)
@given(length=st.integers(100, 2000), seed=st.integers(0, 5))
def test_documents_fit_their_length_and_repeat_no_function(length: int, seed: int) -> None:
    documents = taught(length, seed)
    assert documents and all(count(text) <= length for text in documents)
    defined = Counter(
        name
        for text in documents
        for heading in HEADINGS.values()
        if heading in text
        for name in re.findall(r"^def (\w+)", text.partition(heading)[0], re.MULTILINE)
    )
    assert max(defined.values()) == 1


def test_what_a_document_says_again_it_has_said_before() -> None:
    for text in taught(400):
        for heading in HEADINGS.values():
            code, found, ends = text.partition(heading)
            if found and "covered_by" not in ends:
                assert all(part.strip() in code for part in ends.split("\n\n") if part.strip())
            elif found:
                for name, test in re.findall(r"covered_by\((\w+), (\w+)\)", ends):
                    (body,) = [part for part in code.split("\n\n") if f"def {test}(" in part]
                    assert f"{name}(" in body


def test_short_and_long_documents_share_the_tokens() -> None:
    sizes = [count(text) for text in taught(1600, size=600)]
    short = sum(size for size in sizes if size <= 1600 >> (HALVINGS - 2))
    assert 0.25 < short / sum(sizes) < 0.75


def test_documents_stream() -> None:
    """The first comes before the source is read to its end: memory does not grow with the code."""
    read = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal read
        while True:
            read += 1
            yield from project(seed=read)

    assert next(iter(lookup_documents(endless(), count, 300, 0)))
    assert read < 100
