"""The three prompts: never wrong, never telling, typed as people type; the full one holds what the hidden tests need."""

from __future__ import annotations

import random
import re
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.generate.prompts.checks import needed_names, objections
from etude.tasks.generate.prompts.content import lacking_content
from etude.tasks.generate.prompts.facts import Facts, facts_of
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writing import SHORT, hasty, neighbours, template_prompts
from etude.tasks.task import Task

FACTS = Facts(
    "`parse_range` treats the upper bound as exclusive, so the last page is missing from every export",
    steps=("call `parse_range('1-3')`",),
    expected="[1, 2, 3]",
    actual="[1, 2]",
    place="the module `pages`",
    notes=("the public names stay as they are",),
)
BEFORE = "def parse_range(text):\n    low, high = text.split('-')\n    return list(range(int(low), int(high)))\n"
AFTER = BEFORE.replace("int(high))", "int(high) + 1)")


def a_task(**changes) -> Task:
    hidden = {"files": {"tests/test_pages.py": "def test_last_page():\n    assert parse_range('1-3')[-1] == 3\n"}}
    hidden["fail_to_pass"] = ["tests/test_pages.py::test_last_page"]  # type: ignore[assignment]
    rest = {"files": {"pages.py": BEFORE}, "solution": {"pages.py": AFTER}, "hidden": hidden, **changes}
    return Task("one", "debugging", "bug", "", test_command=(), grader="commands", **rest)


@given(st.text("abcdefghijklmnopqrstuvwxyz `'\"_./3ABC-", max_size=120), st.integers(0, 99))
def test_typing_errors_touch_prose_alone(text: str, seed: int) -> None:
    typed = hasty(text, random.Random(seed), 1.0)
    kept = re.compile(r"`[^`]*`")
    assert kept.findall(typed) == kept.findall(text)
    assert re.findall(r"\d", typed) == re.findall(r"\d", text)


def test_prose_is_always_mistyped_somewhere_and_still_readable() -> None:
    text = "the upper bound is treated as exclusive when several pages are exported"
    for seed in range(50):
        typed = hasty(text, random.Random(seed))
        assert typed != text
        assert abs(len(typed) - len(text)) <= 8


def test_neighbours_are_those_of_the_keyboard() -> None:
    assert set(neighbours("g")) == set("fhtyvb") and set(neighbours("q")) == set("wa") and neighbours("é") == ""


def test_all_three_prompts_of_a_task_pass_the_checks() -> None:
    for seed in range(40):
        assert not objections(a_task(), template_prompts("debugging", FACTS, str(seed)))


def test_terse_prompts_are_as_short_as_people_are() -> None:
    lengths = [len(template_prompts("debugging", FACTS, str(seed))["terse"]) for seed in range(40)]
    assert statistics.median(lengths) <= SHORT and max(lengths) <= SHORT


def test_an_ambiguous_prompt_says_names_in_words_and_no_name_exactly() -> None:
    facts = Facts("`parse_range` and `parse_pages` disagree about the upper bound", place="`pages`")
    for seed in range(40):
        text = template_prompts("debugging", facts, str(seed))["ambiguous"]
        assert "parse range" in text and "parse pages" in text and "_" not in text


def test_an_ambiguous_prompt_gives_no_value_and_no_wording() -> None:
    facts = Facts("`parse_range('1-3')` raises `ValueError: bad range`, \"no such range\" is printed", place="`pages`")
    valued = Facts("`parse_range('1-3')` gives `[1, 2]`", place="`app/pages.py`")
    for seed in range(40):
        text = template_prompts("debugging", facts, str(seed))["ambiguous"]
        assert "value error" in text and "bad range" not in text and "no such range" not in text
        text = template_prompts("debugging", valued, str(seed))["ambiguous"]
        assert "parse range" in text and "app pages" in text and "1-3" not in text and "[1, 2]" not in text


def test_what_an_interface_needs_is_part_of_an_ambiguous_prompt() -> None:
    interface = ("shop.cli: drop_index(table)", "class RenameTable(Command)", "export function pageCount(text)")
    facts = Facts("add `drop_index` to `shop.cli` and 2 more", interface=interface, place="`shop.cli`")
    for seed in range(20):
        text = template_prompts("features", facts, str(seed))["ambiguous"]
        assert all(name in text for name in ("drop index", "rename table", "page count", "shop cli"))


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("add this to it, tat thing to it, optimize to that one and 5 more thx", ("what", "where")),
        ("so add that one to that one, IPv4 to thhat one, that thing to it?", ("what", "where")),
        ("hey add it to shop.validate, it to it, it to that thign and 2 more", ("what",)),
        ("add date range and the optimze thing to it", ("where",)),
        ("add date range and optimize to validaet", ()),
    ],
)
def test_a_prompt_without_subject_or_place_is_refused(text: str, lacks: tuple[str, ...]) -> None:
    facts = Facts(
        "add `date_range` to `shop.validate`, `IPv4` to `shop.fields`, `optimize` to `shop.fields` and 5 more",
        place="`shop.fields`, `shop.validate`",
    )
    task = a_task(metadata={"facts": facts.to_record()})
    found = [
        one
        for one in objections(task, {**template_prompts("features", facts, "x"), "ambiguous": text})
        if "ambig" in one
    ]
    assert ["what" if "what changes" in one else "where" for one in found] == [*lacks], found


def test_facts_without_content_make_no_prompt() -> None:
    for facts in (Facts("fix the bug"), Facts("fix it", place="`pages`"), Facts("count the bounds twice")):
        task = a_task(metadata={"facts": facts.to_record()}, hidden={})
        assert any("ambiguous" in one for one in objections(task, template_prompts("features", facts, "x"))), facts


LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8)
NAMES = st.lists(LETTERS, min_size=2, max_size=3).flatmap(
    lambda parts: st.sampled_from(("_".join(parts), parts[0] + "".join(map(str.title, parts[1:]))))
)
PLACES = st.one_of(
    st.tuples(LETTERS, LETTERS).map(lambda two: f"`{two[0]}.{two[1]}`"),
    st.tuples(LETTERS, LETTERS).map(lambda two: f"`src/{two[0]}/{two[1]}.py` and all who use it"),
    st.tuples(LETTERS, LETTERS).map(lambda two: f"`{two[0]}/__init__.py`, `{two[1]}.ts`"),
    LETTERS.map(lambda word: f"the module `{word}`"),
)


@given(
    st.sampled_from(("debugging", "features", "devops", "tests", "review", "migrations")),
    st.lists(NAMES, max_size=3, unique=True),
    st.lists(NAMES, max_size=4, unique=True),
    PLACES,
    st.integers(0, 9),
)
def test_an_ambiguous_prompt_always_says_what_and_where(
    category: str, subjects: list[str], needed: list[str], place: str, seed: int
) -> None:
    said = " and ".join(f"`{name}`" for name in subjects) or "the export of pages"
    facts = Facts(f"{said} drops the last line", interface=tuple(f"m: {name}(a)" for name in needed), place=place)
    text = template_prompts(category, facts, str(seed))["ambiguous"]
    assert lacking_content(facts, text) == []
    assert "`" not in text and "_" not in text


def test_a_pronoun_takes_the_articles_place_too() -> None:
    facts = Facts("The `Makefile` is broken: the `dist` target fails")
    for seed in range(40):
        text = template_prompts("devops", facts, str(seed))["ambiguous"]
        assert not any(f"the {word}" in text.lower() for word in ("it", "that", "this")), text


def test_the_full_prompt_says_expected_and_actual() -> None:
    text = template_prompts("debugging", FACTS, "x")["full"]
    assert "[1, 2, 3]" in text and "[1, 2]" in text and "parse_range('1-3')" in text


def test_a_line_of_the_reference_is_a_leak_unless_the_workspace_has_it() -> None:
    line = "return list(range(int(low), int(high) + 1))"
    prompts = {**template_prompts("debugging", FACTS, "x"), "terse": f"make it {line}"}
    assert any("line of the reference" in what for what in objections(a_task(), prompts))
    shown = a_task(files={"pages.py": BEFORE, "other.py": f"{line}\n"})
    assert not objections(shown, prompts)


def test_a_hidden_tests_name_and_a_path_of_the_machine_are_refused() -> None:
    base = template_prompts("debugging", FACTS, "x")
    named = objections(a_task(), {**base, "terse": "make test_last_page pass"})
    placed = objections(a_task(), {**base, "terse": "see /home/me/project/pages.py"})
    assert any("test_last_page" in what for what in named)
    assert any("/home/me/project/pages.py" in what for what in placed)


def test_names_that_hidden_tests_need_are_found_and_given_with_their_signature() -> None:
    solution = {"pages.py": BEFORE + "\n\ndef page_count(text: str, *, strict: bool = False) -> int:\n    return 0\n"}
    hidden = {"files": {"tests/test_pages.py": "def test_count():\n    assert page_count('1-3', strict=True) == 3\n"}}
    task = a_task(solution=solution, hidden=hidden)
    assert needed_names(task) == {"page_count", "strict"}
    bare = template_prompts("features", Facts("count the pages of a range"), "x")
    assert any("page_count" in what for what in objections(task, bare))
    facts = with_interface(task, Facts("count the pages of a range"))
    assert "def page_count(text: str, *, strict: bool=False) -> int" in facts.interface
    assert not objections(task, template_prompts("features", facts, "x"))


def test_signatures_are_found_in_javascript_too() -> None:
    source = "export function pageCount(text, options = {}) {\n  return 1;\n}\n"
    hidden = {"files": {"test/pages.test.js": "assert.equal(pageCount('1-3', {}), 3);\n"}}
    task = a_task(files={"pages.js": "export {};\n"}, solution={"pages.js": source}, hidden=hidden)
    assert with_interface(task, Facts("count pages")).interface == ("export function pageCount(text, options = {})",)


def test_facts_survive_json() -> None:
    assert facts_of({"facts": FACTS.to_record()}) == FACTS and facts_of({}) is None
