"""Docstrings and pages to be written: the reference is the project's own, examples are run, and silence is no documentation."""

from __future__ import annotations

import ast

import pytest
from grid_project import SHAPES, grid
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.audit import leaks
from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.generators.documentation import Documentation
from etude.tasks.generate.generators.kinds.defects import defects, spread_by_function
from etude.tasks.generate.generators.kinds.docstrings import documented_names, without
from etude.tasks.generate.generators.kinds.same import same
from etude.tasks.generate.generators.kinds.slices import cut_part, slices
from etude.tasks.graders.documented import bare
from etude.tasks.graders.edits import apply_edits
from etude.tasks.registry import grade

README = "# Grid\n\n```pycon\n>>> from grid.shapes import area, clamp, middle\n>>> area(2, 3)\n6\n>>> clamp(12)\n10\n>>> middle([3, 1, 2])\n2\n```\n"


async def test_docstrings_are_asked_for_and_code_may_not_change_with_them(bench: ProofContext) -> None:
    found = {one.id: one for one in Documentation().candidates(grid(), bench, 0)}
    task = await found["grid-1.0/documentation/grid.shapes.clamp"].build()
    assert '"""' not in task.files["grid/shapes.py"].partition("def clamp")[2].partition("def middle")[0]
    assert not leaks(task) and task.hidden["symbols"] == ["clamp", "area", "runs"]
    files = {path: text.encode() for path, text in task.files.items()}
    edited_code = task.solution["grid/shapes.py"].replace("return low", "return low + 0")
    assert (
        "more than docstrings"
        in (await grade(task, files | {"grid/shapes.py": edited_code.encode()}, bench.pool)).reason
    )


@pytest.mark.nightly
async def test_a_page_whose_examples_are_stale_is_a_task(bench: ProofContext) -> None:
    found = {one.id: one for one in Documentation().candidates(grid({"README.md": README}), bench, 0)}
    task = await found["grid-1.0/documentation/README.md"].build()
    assert task.files["README.md"] != README == task.solution["README.md"]
    files = {path: text.encode() for path, text in task.files.items()}
    fewer = README.replace(">>> middle([3, 1, 2])\n2\n", "").encode()
    assert "is gone" in (await grade(task, files | {"README.md": fewer}, bench.pool)).reason


def test_taking_docstrings_away_changes_nothing_else() -> None:
    names = {one.name for one in documented_names(SHAPES)}
    assert names == {"clamp", "area", "runs", "middle"}
    assert bare(without(SHAPES, names)) == bare(SHAPES)
    assert ">>>" not in without(SHAPES, names)


@given(st.integers(0, 10_000))
def test_a_defect_parses_differs_and_changes_one_line_alone(number: int) -> None:
    found = defects("grid/shapes.py", SHAPES)
    one = found[number % len(found)]
    after = apply_edits({"grid/shapes.py": SHAPES}, [one.edit()])["grid/shapes.py"]
    assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(SHAPES))
    differing = [
        n for n, rows in enumerate(zip(SHAPES.split("\n"), after.split("\n"), strict=True), 1) if rows[0] != rows[1]
    ]
    assert differing == [one.line]
    assert sorted(spread_by_function(found), key=lambda each: each.at) == sorted(found, key=lambda each: each.at)


def test_variants_that_behave_the_same_are_written_differently() -> None:
    comments, unread = [apply_edits({"a.py": SHAPES}, edits)["a.py"] for edits in same("a.py", SHAPES)]
    assert ast.dump(ast.parse(comments)) == ast.dump(ast.parse(SHAPES)) and comments != SHAPES
    assert ast.dump(ast.parse(unread)) != ast.dump(ast.parse(SHAPES))
    space: dict[str, object] = {}
    exec(compile(unread, "a.py", "exec"), space)
    assert space["area"](2, 3) == 6  # type: ignore[operator]


def test_a_change_under_review_is_whole_functions_of_a_file_that_parses_without_them() -> None:
    found = slices("a.py", SHAPES, 10, 40)
    assert {name for part in found for name in part.names} == {"clamp", "area", "runs", "middle"}
    assert all(ast.parse(cut_part(SHAPES, part)) for part in found)
