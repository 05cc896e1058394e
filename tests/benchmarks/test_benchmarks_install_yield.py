"""Which releases of npm count as projects with tests: by their own files, never by whether they install."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "install_yield.py"))
javascript_objection, listed_names = SCRIPT["javascript_objection"], SCRIPT["listed_names"]
CODE = "".join(f"export const a{n} = {n};\n" for n in range(12))
TEST = "import { a1 } from '../src/a.js';\ntest('one', () => {\n  expect(a1).toBe(1);\n});\n"
TREE = {"src/a.js": CODE, "test/a.test.js": TEST}


def released(script: str = "jest", **files: str) -> dict[str, str]:
    return {"package.json": json.dumps({"scripts": {"test": script}}), **TREE, **files}


def test_a_release_with_a_script_tests_and_code_counts() -> None:
    assert javascript_objection(released()) == ""


@pytest.mark.parametrize("script", ["", 'echo "Error: no test specified" && exit 1', "exit 0", "true"])
def test_a_script_that_runs_nothing_is_none(script: str) -> None:
    assert javascript_objection(released(script)) == "no script test"


@pytest.mark.parametrize(
    "text",
    [
        "'use strict';\n\nrequire('./helpers/chai.js');\n",
        "import { expect } from 'chai';\ndescribe('thing', () => {\n  it('works', () => {\n    expect(true).toBe(true);\n  });\n});\n",
        "const assert = require('assert');\ndescribe('a', function () {\n  it('b', function () {\n    // TODO\n  });\n});\n",
    ],
)
def test_a_test_file_with_no_more_than_a_template_holds_is_none(text: str) -> None:
    assert javascript_objection(released(**{"test/a.test.js": text})) == "no test in its test files"


@pytest.mark.parametrize(
    "text",
    [
        "const tester = new RuleTester();\ntester.run('rule', rule, { valid: ['a'] });\n",
        "const a = require('..');\nif (a() !== 1) process.exit(1);\n",
        "t.is(one(), 1);\n",
    ],
)
def test_tests_of_any_library_count(text: str) -> None:
    assert javascript_objection(released(**{"test/a.test.js": text})) == ""


def test_tests_without_code_are_a_template_and_tests_of_sources_that_were_not_released_can_t_run() -> None:
    assert javascript_objection(released(**{"src/a.js": "export {};"})) == "no own code"
    files = released(**{"lib/b.js": CODE})
    del files["src/a.js"]
    assert javascript_objection(files) == "its tests import sources that it does not hold"
    del files["test/a.test.js"]
    assert javascript_objection(files) == "no test file in it"


def test_names_are_taken_from_a_list_of_one_a_line_or_from_a_table(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("b\na\n\n")
    assert listed_names(tmp_path / "names") == ["a", "b"]
    (tmp_path / "table").write_text("name\tversion\nb\t1\na\t2\n")
    assert listed_names(tmp_path / "table") == ["a", "b"]
