"""A feature of JavaScript leaves with its imports, exports, documents and tests, and the reference puts all of it back."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.generators.deletion.generator import FeatureDeletion, draft_deletion
from etude.tasks.generate.generators.deletion.language import language, runnable_settings
from etude.tasks.generate.generators.deletion.script_cutting import script_tests_without, script_without
from etude.tasks.generate.generators.deletion.script_index import script_index

SHAPES = """'use strict';

const round = require('./round');

/**
 * The area of a circle.
 */
function area(radius) {
    if (radius < 0) {
        throw new Error('a radius is not negative');
    }
    const squaredRadius = squared(radius);
    const wholeArea = Math.PI * squaredRadius;
    const roundedArea = round(wholeArea);
    return roundedArea;
}

function squared(number) {
    return number * number;
}

// Around it: é.
const perimeter = (radius) => 2 * Math.PI * radius;

module.exports = { area, perimeter };
"""
ROUND = "'use strict';\nmodule.exports = function round(value) {\n    return Math.round(value * 1e9) / 1e9;\n};\n"
TESTS = """const test = require('node:test');
const assert = require('node:assert');
const { area, perimeter } = require('../circle');

test('shapes', async (t) => {
    await t.test('area', () => {
        assert.strictEqual(area(0), 0);
    });
    await t.test('perimeter', () => {
        assert.strictEqual(perimeter(0), 0);
    });
});
"""
FILES = {
    "index.js": "exports.area = require('./circle').area;\nexports.perimeter = require('./circle').perimeter;\n",
    "circle.js": SHAPES,
    "round.js": ROUND,
    "README.md": "# Shapes\n\nCircles.\n\n- `area(r)`: the area\n- `perimeter(r)`: around it\n",
    "package.json": '{"name": "shapes", "version": "1.0.0", "keywords": ["area"]}\n',
    "test/circle.js": TESTS,
}
FEATURE = frozenset(("area", "squared", "round"))


@pytest.fixture
async def bench() -> AsyncIterator[ProofContext]:
    pool = await open_pool(SandboxSettings())
    yield ProofContext(pool, 20.0)
    await pool.close()


def project(**more: str) -> InstalledProject:
    files = {**FILES, "index.js": "module.exports = { ...require('./circle') };\n", **more}
    plan = TestPlan("node", ("node", "--test", "{files}"), ("test/circle.js",))
    names = ("test/circle.js::shapes", "test/circle.js::shapes > area", "test/circle.js::shapes > perimeter")
    known = Baseline(frozenset(names), by_file={"test/circle.js": names})
    return InstalledProject(Environment("shapes", "1.0.0", "javascript", tests=plan), files, known)


def test_a_feature_takes_what_nothing_else_uses_and_no_module_exports():
    found = script_index({path: FILES[path] for path in ("circle.js", "round.js")})
    kinds = {one.name: (one.private, one.helper) for one in found.defined}
    assert kinds == {
        "area": (False, False),
        "squared": (True, True),
        "perimeter": (False, False),
        "round": (False, True),
    }
    assert found.feature(["area"], 9) == FEATURE
    assert (
        found.definitions_of(["area"])[0].signature == "area(radius)"
        and found.definitions_of(["area"])[0].doc == "The area of a circle."
    )


def test_a_second_name_for_it_ties_a_definition_up():
    files = {"a.js": "function a() {}\nmodule.exports = { a };\n", "b.mjs": "import { a as b } from './a.js';\n"}
    assert script_index({"a.js": files["a.js"]}).feature(["a"], 9) == {"a"}
    assert script_index(files).feature(["a"], 9) == frozenset()


def test_a_method_of_the_language_is_no_use_of_the_project_s_name():
    text = "function parse(s) { return JSON.parse(s); }\nfunction other() { return JSON.parse('1'); }\n"
    assert script_index({"a.js": text}).feature(["parse"], 9) == {"parse"}


def test_exports_imports_and_comments_go_with_the_definition():
    left = script_without("circle.js", SHAPES, FEATURE)
    assert left is not None and "The area" not in left and "require" not in left
    assert left.endswith(
        "// Around it: é.\nconst perimeter = (radius) => 2 * Math.PI * radius;\n\nmodule.exports = { perimeter };\n"
    )
    assert script_without("round.js", ROUND, FEATURE) is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("module.exports = {\n    a,\n    b,\n};\n", "module.exports = {\n    a,\n};\n"),
        ("module.exports = { b, a };\n", "module.exports = { a };\n"),
        ("module.exports = { b };\n", "module.exports = {};\n"),
        ("exports.a = 1;\nexports.b = require('./b');\n", "exports.a = 1;\n"),
        ("import { a, b } from './m';\nexport { a, b };\n", "import { a } from './m';\nexport { a };\n"),
        ("x();\nimport { b } from './m';\n", "x();\n"),
        ("const { b } = require('./m');\nx();\n", "x();\n"),
        ("x();\n\n\n// about b\nexport async function b() {}\n", "x();\n"),
        ("x();\nexport class b {}\n", "x();\n"),
        ("const known = { a, b: b, 'c': require('./c') };\n", "const known = { a, 'c': require('./c') };\n"),
        ("const c = require('./c');\nx(c.B);\n", "const c = require('./c');\nx(c.B);\n"),
    ],
)
def test_cutting_leaves_every_other_character(text: str, left: str):
    assert script_without("m.ts", text, ["b"]) == left


@pytest.mark.parametrize(
    "text", ["x(b);\n", "const { b: c } = require('./m');\nc();\n", "import d, { b } from './m';\nx(d, b);\n"]
)
def test_what_still_uses_it_is_not_taken_apart(text: str):
    with pytest.raises(SyntaxError, match="still uses b"):
        script_without("m.js", text, ["b"])


def test_two_statements_on_a_line_are_not_taken_apart():
    with pytest.raises(SyntaxError, match="several statements"):
        script_without("m.js", "x(); function b() {}\n", ["b"])


def test_test_files_lose_the_innermost_tests_of_the_feature():
    left = script_tests_without("t.js", TESTS, FEATURE)
    assert left is not None and "area" not in left and "t.test('perimeter'" in left and "{ perimeter }" in left


def test_a_group_without_tests_goes_and_so_do_helpers_that_use_the_feature():
    text = (
        "function check(v) { return area(v); }\n"
        "describe('area', () => {\n  it('is', () => { check(1); });\n});\n"
        "it('other', () => { ok(1); });\n"
    )
    assert script_tests_without("t.js", text, FEATURE) == "it('other', () => { ok(1); });\n"


def test_a_test_file_that_cannot_do_without_the_feature_goes_whole():
    assert script_tests_without("t.js", "const x = area(1);\nit('a', () => { ok(x); });\n", FEATURE) is None
    assert script_tests_without("t.js", "it('a', () => { ok(area(1)); });\n", FEATURE) is None


def test_words_that_only_describe_a_package_name_no_part_of_it():
    assert "area" not in runnable_settings("package.json", FILES["package.json"])
    assert "area" in runnable_settings("package.json", '{"main": "area.js", "keywords": []}')


def test_the_draft_hides_the_tests_and_its_reference_restores_every_file():
    one = project()
    draft = draft_deletion(one, language(one).index(one), FEATURE, "small", "features/shapes/area")
    assert {**draft.base, **draft.changed, **draft.solution, **draft.hidden} == one.files
    assert set(draft.solution) == {"circle.js", "round.js", "README.md"} and draft.removed == ["round.js"]
    assert draft.hidden == {"test/circle.js": TESTS} and "area" not in draft.changed["test/circle.js"]


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
async def test_a_feature_of_javascript_is_asked_for_and_proved(bench: ProofContext):
    tasks = [await one.build() for one in FeatureDeletion().candidates(project(), bench, 0)]
    assert [task.metadata["deleted"] for task in tasks] == [["circle.js:area", "circle.js:squared", "round.js:round"]]
    assert "area(radius)" in tasks[0].metadata["prompts"]["full"] and "The area of a circle" in tasks[0].instruction
