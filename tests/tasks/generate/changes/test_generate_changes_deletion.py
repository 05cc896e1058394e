"""A deleted feature leaves nothing behind that tells how it was written, and the reference puts all of it back."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.tasks.content import EXECUTABLE, LINK, FileText, file_text, mode_of
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.generators.deletion.cutting import tests_without as trimmed
from etude.tasks.generate.generators.deletion.cutting import without
from etude.tasks.generate.generators.deletion.generator import (
    FeatureDeletion,
    choose_features,
    draft_deletion,
    leftovers,
    remove_mentions,
)
from etude.tasks.generate.generators.deletion.index import index
from etude.tasks.generate.generators.deletion.language import language
from etude.tasks.generate.generators.deletion.related import References

SHAPES = """\
import math

__all__ = ["area", "perimeter"]


def area(radius):
    \"\"\"The area of a circle.\"\"\"
    if radius < 0:
        raise ValueError("a radius is not negative")
    squared_radius = _squared(radius)
    whole_area = math.pi * squared_radius
    rounded_area = round(whole_area, 9)
    return rounded_area


def _squared(number):
    return number * number


def perimeter(radius):
    return 2 * math.pi * radius


KNOWN = {"area": area, "perimeter": perimeter}
"""
TESTS = """\
from shapes import area, perimeter


def test_area():
    assert area(0) == 0


def test_perimeter():
    assert perimeter(0) == 0
"""
FILES = {
    "shapes/__init__.py": "from shapes.circle import area, perimeter\n",
    "shapes/circle.py": SHAPES,
    "README.md": "# Shapes\n\nCircles.\n\n- `area(r)`: the area\n- `perimeter(r)`: around it\n",
    "tests/test_circle.py": TESTS,
}
PROJECT = InstalledProject(Environment("shapes", "1.0"), FILES, Baseline(frozenset()))
MODULES = {path: FILES[path] for path in ("shapes/__init__.py", "shapes/circle.py")}
FEATURE = frozenset(("area", "_squared"))


def test_a_feature_takes_private_helpers_along_that_nothing_else_uses():
    assert index(MODULES).feature(["area"], 9) == FEATURE


def test_a_feature_takes_its_users_along_and_is_refused_when_they_are_too_many():
    files = {"m.py": "def a():\n    return 1\n\n\ndef b():\n    return a()\n"}
    assert index(files).feature(["a"], 2) == {"a", "b"}
    assert index(files).feature(["a"], 1) == frozenset()


def test_what_a_module_runs_on_import_is_no_feature():
    assert index({"m.py": "def a():\n    return 1\n\n\nX = a()\n"}).feature(["a"], 9) == frozenset()


def test_exports_and_registrations_go_with_the_definition():
    left = without(SHAPES, FEATURE)
    ast.parse(left)
    assert "area" not in left and "_squared" not in left and '{"perimeter": perimeter}' in left


def test_an_import_keeps_its_other_names():
    assert without("from a import (\n    b,\n    c,\n)\n", ["c"]).split() == "from a import ( b, )".split()
    assert without("from a import b, c\n", ["c"]) == "from a import b\n"
    assert without("from a import c\nx = 1\n", ["c"]) == "x = 1\n"


def test_test_files_lose_the_tests_of_the_feature_alone():
    left = trimmed(TESTS, FEATURE)
    assert left is not None and "test_perimeter" in left and "area" not in left


def test_a_test_file_that_cannot_do_without_the_feature_goes_whole():
    assert trimmed("from shapes import area\n\nX = area(1)\n\n\ndef test_x():\n    assert X\n", FEATURE) is None


def test_documents_lose_what_speaks_of_the_feature_and_keep_the_word_in_prose():
    assert remove_mentions(FILES["README.md"], FEATURE) == "# Shapes\n\nCircles.\n\n- `perimeter(r)`: around it\n"
    assert remove_mentions("This area of work.\n", FEATURE) == "This area of work.\n"


def test_the_scan_finds_copies_of_deleted_lines_and_private_names():
    area = "\n".join(SHAPES.splitlines()[5:14])
    copy = "\n".join(area.splitlines()[2:])
    assert leftovers([area], {"old.cfg": copy}, FEATURE)[0].startswith("old.cfg holds")
    assert leftovers([], {"notes.py": "# see _squared", "notes.txt": "_squared"}, FEATURE) == [
        "notes.py names _squared"
    ]


def test_what_siblings_have_in_common_is_no_copy():
    lines = [f"    result_{n} = compute_something({n})" for n in range(40)]
    common = "\n".join(lines[:8])
    assert leftovers(["\n".join(lines)], {"sibling.py": common}, ()) == []
    assert leftovers(["\n".join(lines)], {"copy.py": "\n".join(lines[:30])}, ()) != []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('__all__ = [\n    "a",\n    "b",\n]\n', '__all__ = [\n    "a",\n]\n'),
        ('__all__ = ("a", "b")\n', '__all__ = ("a",)\n'),
        ('__all__ = ["b"]\n', "__all__ = []\n"),
        ('X = {"b": b, "c": (b, d)}\n', 'X = {"c": (b, d)}\n'),
        (
            "try:\n    from m import b\nexcept ImportError:\n    b = None\n",
            "try:\n    pass\nexcept ImportError:\n    b = None\n",
        ),
        ("x = 1\n\n\n# about b\n@deco\ndef b():\n    return 1\n", "x = 1\n"),
        ("from m import (  # é\n    a,\n    b,  # of it\n)\n", "from m import (  # é\n    a,\n)\n"),
    ],
)
def test_cutting_leaves_every_other_character(text: str, left: str):
    assert without(text, ["b"]) == left


def test_two_statements_on_a_line_are_not_taken_apart():
    with pytest.raises(SyntaxError, match="several statements"):
        without("x = 1; from m import b\n", ["b"])


def test_the_draft_hides_the_tests_and_its_reference_restores_every_file():
    draft = draft_deletion(PROJECT, index(MODULES), FEATURE, "small", "features/shapes/area")
    assert {**draft.base, **draft.changed, **draft.solution, **draft.hidden} == FILES
    assert set(draft.solution) == {"shapes/__init__.py", "shapes/circle.py", "README.md"}
    assert draft.hidden == {"tests/test_circle.py": TESTS} and "test_area" not in draft.changed["tests/test_circle.py"]
    assert all(draft.prompts[style] for style in ("terse", "ambiguous", "full"))


def test_a_copy_of_the_feature_elsewhere_is_no_task():
    files = {**FILES, "old.cfg": "\n".join(SHAPES.splitlines()[8:14])}
    with pytest.raises(CandidateRejected, match="would still tell"):
        draft_deletion(
            InstalledProject(PROJECT.environment, files, PROJECT.baseline), index(MODULES), FEATURE, "small", "x"
        )


def test_a_large_feature_in_too_few_files_is_no_task():
    with pytest.raises(CandidateRejected, match="a large one needs"):
        draft_deletion(PROJECT, index(MODULES), FEATURE, "large", "x")


def test_candidates_are_the_same_for_the_same_seed():
    small, again = ([*choose_features(PROJECT, index(MODULES), 3, "small")] for _ in range(2))
    assert small == again == [FEATURE] and [*choose_features(PROJECT, index(MODULES), 3, "large")] == []


def shapes_project(uses: dict[str, tuple[str, ...]], lines: dict[str, int] | None = None) -> InstalledProject:
    """A module a name; each imports and calls those that it uses. Documents and a test file name all of them."""
    modules = {
        f"shapes/{name}.py": "".join(f"from shapes.{other} import {other}\n" for other in others)
        + f"\n\ndef {name}():\n"
        + "".join(f"    value_{name}_{n} = {n}\n" for n in range((lines or {}).get(name, 60)))
        + f"    return [{', '.join(f'{other}()' for other in others)}]\n"
        for name, others in uses.items()
    }
    speaks = {f"docs/{name}.md": " ".join(uses) for name in "abcd"}
    tests = {"tests/test_all.py": "".join(f"from shapes.{name} import {name}\n" for name in uses)}
    return InstalledProject(PROJECT.environment, {**modules, **speaks, **tests}, PROJECT.baseline)


def large(project: InstalledProject, seed: int = 0) -> list[frozenset[str]]:
    return [*choose_features(project, language(project).index(project), seed, "large")]


def test_large_features_that_ask_for_the_same_are_proposed_once():
    solids = ("cube", "cone", "torus", "prism", "knot", "ring")
    pairs = {f"{one}_{two}": (one, two) for n, one in enumerate(solids) for two in solids[n + 1 :]}
    found = large(shapes_project({**dict.fromkeys(solids, ()), **pairs}, {"cube": 980}))
    assert sum("cube" in one for one in found) == 1  # whatever is with it, most lines are the cube's
    assert len({one for one in found if "cube" not in one}) == len(found) - 1 > 1


def test_unrelated_functions_make_no_large_feature_and_the_account_says_why():
    project = shapes_project(dict.fromkeys(("cube", "cone", "torus", "prism", "knot", "ring"), ()))
    assert large(project) == []
    candidates = [*FeatureDeletion("large").candidates(project, None, 0)]  # type: ignore[arg-type]
    assert [one.id for one in candidates] == ["features/shapes-1.0/large-features/none"]
    with pytest.raises(CandidateRejected, match="refer to one another make 150 lines in 4 files"):
        asyncio.run(candidates[0].build())


def test_a_name_that_is_not_imported_connects_nothing():
    project = shapes_project({"cube": (), "get": (), "box": ("cube",), "net": ("get",)}, {"cube": 200})
    files = {path: text.replace("return [", "x.get\n    return [") for path, text in project.files.items()}
    known = language(project).index(replace(project, files=files))
    assert "get" in next(one for one in known.defined if one.name == "box").uses
    assert not References(known).is_connected(["box", "get"]) and References(known).is_connected(["net", "get"])
    assert all("net" not in names or "box" not in names for names in large(replace(project, files=files)))


@given(
    st.dictionaries(st.integers(0, 9), st.frozensets(st.integers(0, 9), max_size=2), min_size=3, max_size=10),
    st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_every_part_of_a_large_feature_is_reached_from_another(drawn: dict[int, frozenset[int]], seed: int):
    uses = {
        f"solid{n}": tuple(f"solid{m}" for m in sorted(others) if m in drawn and m != n) for n, others in drawn.items()
    }
    project = shapes_project(uses)
    for names in large(project, seed):
        reached = {min(names)}
        for _ in names:
            reached |= {m for n in names for m in uses[n] if n in reached and m in names}
            reached |= {n for n in names for m in uses[n] if m in reached}
        assert reached == names and len(names) > 1


def test_a_large_feature_of_javascript_is_connected_by_its_requires():
    lines = "".join(f"  const value{n} = {n};\n" for n in range(90))
    body = lambda name, call: f"function {name}() {{\n{lines}  return {call};\n}}\n"
    files = {
        "lib/core.js": body("core", "1") + "module.exports = { core };\n",
        "lib/view.js": "const { core } = require('./core');\n"
        + body("view", "core()")
        + "module.exports = { view };\n",
        "lib/alone.js": body("alone", "2") + body("apart", "3") + "module.exports = { alone, apart };\n",
        "docs/a.md": "`core` `view` `alone` `apart`\n",
        "docs/b.md": "`core` `view` `alone` `apart`\n",
        "test/all.js": "const names = ['core', 'view', 'alone', 'apart'];\n",
    }
    plan = TestPlan("node", ("node", "--test", "{files}"), ("test/all.js",))
    project = InstalledProject(Environment("shapes", "1.0", "javascript", tests=plan), files, Baseline(frozenset()))
    assert large(project) == [frozenset(("core", "view"))]


def test_a_request_quotes_no_line_of_code_that_the_documentation_shows():
    example = "    squared_radius = _squared(radius)\n"
    files = {**FILES, "shapes/circle.py": SHAPES.replace("The area of a circle.", f"The area:\n\n{example}    ")}
    project = InstalledProject(Environment("shapes", "1.0"), files, Baseline(frozenset()))
    modules = {path: files[path] for path in MODULES}
    draft = draft_deletion(project, index(modules), FEATURE, "small", "features/shapes/area")
    assert "The area:" in draft.prompts["full"] and "squared_radius" not in draft.prompts["full"]


SPECIAL = {
    "logo.png": file_text(b"\x89PNG area\0"),
    "area": FileText("shapes/circle.py", LINK),
    "docs/old.txt": file_text(b"caf\xe9 without the word\n"),
    "tests/test_latin.py": file_text(b"# caf\xe9\ndef test_nothing(): pass\n"),
}


def test_files_that_are_no_text_do_not_hinder_a_deletion_and_stay_as_they_are():
    project = replace(PROJECT, files={**FILES, **SPECIAL})
    known = language(project).index(project)
    draft = draft_deletion(project, known, FEATURE, "small", "x")
    assert not SPECIAL.keys() & {*draft.changed, *draft.solution, *draft.removed} and draft.base == project.files
    assert [*choose_features(project, known, 0, "small")] == [*choose_features(PROJECT, known, 0, "small")]


def test_a_feature_that_code_in_another_encoding_names_is_refused_with_its_path():
    project = replace(PROJECT, files={**FILES, "old.py": file_text(b"# caf\xe9\nfrom shapes import area\n")})
    with pytest.raises(CandidateRejected, match=r"old\.py names a part of it and is no UTF-8 text"):
        draft_deletion(project, language(project).index(project), FEATURE, "small", "x")


def test_a_document_in_another_encoding_loses_what_speaks_of_the_feature():
    text = b"# caf\xe9\n\n- `area(r)`: the area\n- `perimeter(r)`: around it\n"
    project = replace(PROJECT, files={**FILES, "OLD.md": file_text(text)})
    draft = draft_deletion(project, language(project).index(project), FEATURE, "small", "x")
    assert bytes(draft.changed["OLD.md"].encode()) == b"# caf\xe9\n\n- `perimeter(r)`: around it\n"
    assert draft.solution["OLD.md"] == file_text(text)


def test_a_file_that_can_be_run_can_be_run_without_the_feature():
    program = FileText("#!/usr/bin/env python\n" + SHAPES, EXECUTABLE)
    project = replace(PROJECT, files={**FILES, "shapes/circle.py": program})
    draft = draft_deletion(project, language(project).index(project), FEATURE, "small", "x")
    assert mode_of(draft.changed["shapes/circle.py"]) == mode_of(draft.solution["shapes/circle.py"]) == EXECUTABLE
