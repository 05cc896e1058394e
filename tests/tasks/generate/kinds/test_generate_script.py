"""JavaScript read by syntax trees: what a change could have added, and defects that stay on their line."""

from __future__ import annotations

import re
import shutil

import pytest

from etude.tasks.audit import leaks
from etude.tasks.cheats.repository import cheats_for
from etude.tasks.cheats.reviewed import added
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.generators.bugs.code import Code
from etude.tasks.generate.generators.kinds.same import script_same
from etude.tasks.generate.generators.kinds.script import script_defects, script_slices, script_tested
from etude.tasks.generate.generators.kinds.slices import cut_part
from etude.tasks.generate.generators.review import Review
from etude.tasks.generate.generators.test_writing import TestWriting
from etude.tasks.graders.edits import apply_edits
from etude.tasks.registry import grade

CLAMP = """// The value, or the bound é that it is beyond.
// Both bounds belong to the range.
function clamp(value, low, high) {
    if (high < low) {
        throw new Error('high is below low');
    }
    if (value < low) {
        return low;
    }
    return value > high ? high : value;
}
"""
TEXT = f"""'use strict';

var LIMIT = 10; // of all

{CLAMP}
exports.area = function area(width, height) {{
    if (width <= 0 || height <= 0) {{
        return 0;
    }}
    return width * height;
}};

exports.runs = (values) => {{
    const found = [];
    let last = null;
    for (let number = 0; number < values.length; number += 1) {{
        if (number === 0 || values[number] !== last) {{
            found.push(0);
        }}
        found[found.length - 1] += 1;
        last = values[number];
    }}
    return found;
}};

exports.clamp = clamp;
"""
TESTS = """const test = require('node:test');
const assert = require('node:assert');
const { clamp, area, runs } = require('../grid');
test('clamp', () => {
    assert.deepStrictEqual([clamp(5, 0, 10), clamp(-1, 0, 10), clamp(11, 0, 10)], [5, 0, 10]);
    assert.throws(() => clamp(1, 2, 1));
});
test('area', () => { assert.deepStrictEqual([area(2, 3), area(0, 3), area(1, 0)], [6, 0, 0]); });
test('runs', () => { assert.deepStrictEqual([runs([1, 1, 2]), runs([])], [[2, 1], []]); });
"""


def grid_in_javascript(modules: int = 1) -> InstalledProject:
    files: dict[str, str] = {"package.json": '{"name": "grid", "version": "1.0.0"}\n'}
    for number in range(modules):
        suffix = str(number) if number else ""
        files |= {f"grid{suffix}.js": TEXT, f"test/grid{suffix}.js": TESTS.replace("../grid", f"../grid{suffix}")}
    tests = tuple(path for path in files if path.startswith("test/"))
    plan = TestPlan("node", ("node", "--test", "{files}"), tests)
    environment = Environment("grid", "1.0.0", "javascript", tests=plan)
    names = {path: (f"{path}::clamp", f"{path}::area", f"{path}::runs") for path in tests}
    return InstalledProject(
        environment, files, Baseline(frozenset(n for own in names.values() for n in own), by_file=names)
    )


def test_a_part_takes_its_comments_and_no_other_s_and_leaves_a_module_without_it() -> None:
    parts = script_slices("grid.js", TEXT, 5, 13)
    assert [part.names for part in parts] == [("clamp",), ("area",), ("runs",)]
    lines = TEXT.splitlines(keepends=True)
    assert "".join(lines[parts[0].first - 1 : parts[0].last]).rstrip("\n") == CLAMP.rstrip("\n")
    assert "LIMIT" in cut_part(TEXT, parts[0]) and "function clamp" not in cut_part(TEXT, parts[0])


def test_defects_are_reported_in_characters_and_keep_to_their_line() -> None:
    found = script_defects("grid.js", TEXT)
    assert len(found) > 5 and {one.function for one in found} <= {"clamp", "area", "runs"}
    for one in found:
        after = apply_edits({"grid.js": TEXT}, [one.edit()])["grid.js"]
        changed = [
            number
            for number, (old, new) in enumerate(zip(TEXT.splitlines(), after.splitlines(), strict=True), 1)
            if old != new
        ]
        assert changed == [one.line]


def test_modules_are_reported_with_the_test_files_concerned() -> None:
    project = grid_in_javascript(2)
    assert isinstance(project.files, dict)
    project.files["other.js"] = "exports.idle = 1;\n"  # no function: nothing that could come out wrong
    places = {place.path: place.tests for place in script_tested(project)}
    assert "test/grid1.js" in places["grid1.js"] and set(places) == {"grid.js", "grid1.js"}


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
async def test_changes_of_javascript_are_reviewed_as_those_of_python_are(bench: ProofContext) -> None:
    candidates = list(Review().candidates(grid_in_javascript(6), bench, 1))
    task = await candidates[0].build()
    assert task.hidden["defects"] and not any(path.startswith("test/") for path in task.metadata["changes"])
    spots = set(added(task))
    assert all((one["path"], one["first"]) in spots for one in task.hidden["defects"])


def test_variants_that_behave_the_same_parse_and_keep_directives_first() -> None:
    text = "function f() {\n    'use strict'\n    // comment\n    return 1;\n}\nexports.g = (x) => { return x; };\n"
    note, inside = script_same("m.js", text)
    assert apply_edits({"m.js": text}, note)["m.js"].startswith(text)
    written = apply_edits({"m.js": text}, inside)["m.js"]
    assert "'use strict'; var unread_ = 0;\n" in written and "{; var unread_ = 0; return x; }" in written
    assert not Code("m.js", written.encode()).root.has_error


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
async def test_tests_of_javascript_are_asked_for_and_no_cheat_replaces_them(bench: ProofContext) -> None:
    project = grid_in_javascript(2)
    task = await next(iter(TestWriting().candidates(project, bench, 0))).build()
    assert set(task.metadata["overlay"]["removed"]) == {"test/grid.js", "test/grid1.js"}
    assert task.hidden["import"] == "../grid.js" and not leaks(task)
    files = {path: text.encode() for path, text in task.files.items()}
    weak = task.solution["test/grid.js"].partition("test('area'")[0]
    verdict = await grade(task, files | {"test/grid.js": weak.encode()}, bench.pool)
    assert verdict.score == 0 and "caught" in verdict.reason
    said = {
        "empty_tests": "no test passed|caught 0",
        "vacuous_tests": "caught 0",
        "failing_tests": "no test passed",
        "tests_by_lot": "tests fail|differently|no test passed",
        "source_hashed": "behaves the same",
        "source_squeezed": "repeats",
        "source_copied": "repeats",
        "source_disguised": "without a space|behaves the same",
        "sources_edited": "was changed",
        "tests_exit": ".",
        "assert_patched": "must fail",
    }
    assert set(said) == set(cheats_for(task))
    for name, cheat in cheats_for(task).items():
        found = await grade(task, cheat(task), bench.pool)
        assert found.score == 0 and re.search(said[name], found.reason), (name, found.reason)
