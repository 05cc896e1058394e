"""Splits hold whole projects out: by name alone whatever came before, forks and copies with their original, nothing moves free."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.errors import TaskError
from etude.tasks.splits import ALIKE, ProjectSplit, Shares, SplitConflict, by_name, marks_of, shared_fraction, split_for

shares = st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)).map(lambda pair: Shares(*pair))
names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
marks = st.frozensets(st.integers(0, 40), max_size=40)
placed = st.lists(
    st.builds(ProjectSplit, names, st.sampled_from(["train", "validation", "heldout"]), marks), max_size=5
)


def code(seed: int, functions: int = 60, package: str = "alpha") -> dict[str, str]:
    """A project's files: functions of random names and numbers, whose package is named in every one."""
    draw = random.Random(seed)
    word = lambda: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=7))
    return {
        f"{package}/m{n}.py": f"from {package}.core import {word()}\n\n\ndef {word()}({word()}, {word()}):\n"
        + "".join(f"    {word()} = {word()}({draw.randrange(9999)}) + {word()}[{word()}]\n" for _ in range(12))
        for n in range(functions)
    }


@given(names, shares)
def test_the_name_decides_whatever_its_spelling_or_version(name: str, asked: Shares) -> None:
    assert by_name(name, asked) == by_name(f"node-{name}", asked) == by_name(f"@scope/{name}", asked)
    assert split_for(name, frozenset(), [], asked) == by_name(name, asked)


@given(names, st.floats(0, 0.4), st.floats(0, 0.4), st.floats(0, 0.2))
def test_a_larger_share_frees_nothing_that_was_held_out(name: str, validation: float, heldout: float, more: float):
    if by_name(name, Shares(validation, heldout)) == "heldout":
        assert by_name(name, Shares(validation, heldout + more)) == "heldout"


@given(names, marks, placed, shares)
def test_a_project_goes_with_all_that_are_alike_or_is_refused(name: str, own: frozenset[int], others, asked: Shares):
    akin = {one.split for one in others if one.name == name or shared_fraction(own, one.marks) >= ALIKE}
    try:
        found = split_for(name, own, others, asked)
    except SplitConflict as error:
        assert len(akin) > 1 and name in str(error)
    else:
        assert akin <= {found}


def test_shares_of_many_projects_are_those_that_were_asked_for() -> None:
    found = [by_name(f"project-{n}", Shares(0.1, 0.2)) for n in range(4000)]
    assert found.count("validation") == pytest.approx(400, abs=90) and found.count("heldout") == pytest.approx(
        800, abs=110
    )
    assert {by_name(f"p{n}", Shares(0, 0)) for n in range(50)} == {"train"}
    assert {by_name(f"p{n}", Shares(0, 1)) for n in range(50)} == {"heldout"}
    assert {by_name(f"p{n}", Shares(1, 0)) for n in range(50)} == {"validation"}
    with pytest.raises(TaskError, match="at most 1 together"):
        Shares(0.6, 0.6)


def test_a_renamed_fork_with_a_quarter_rewritten_goes_where_its_original_went() -> None:
    original, other = code(1), code(2)
    fork = {path: text.replace("alpha", "omega") for path, text in original.items()}
    fork = {f"lib/{n}.py": text for n, text in enumerate([*fork.values()][:45] + [*code(3, 15, "omega").values()])}
    assert shared_fraction(marks_of(original), marks_of(fork)) > ALIKE + 0.1
    assert shared_fraction(marks_of(original), marks_of(other)) < 0.05
    for split in ("train", "validation", "heldout"):
        there = [ProjectSplit("alpha", split, marks_of(original))]
        assert split_for("omega", marks_of(fork), there, Shares()) == split


def test_a_copy_inside_a_larger_project_and_a_reformatted_one_are_alike_too() -> None:
    small = code(4, 12)
    assert shared_fraction(marks_of(small), marks_of(small | code(5, 80, "beta"))) == 1
    loose = {path: text.replace("    ", "\t\t").replace(" = ", "  =  ") + "# more\n" for path, text in small.items()}
    assert shared_fraction(marks_of(small), marks_of(loose)) == 1


def test_little_code_and_no_code_say_nothing() -> None:
    assert shared_fraction(marks_of({"a.py": "x = 1\n"}), marks_of({"a.py": "x = 1\n"})) == 0
    assert not marks_of({"LICENSE": "word " * 5000, "README.md": "word " * 5000})
