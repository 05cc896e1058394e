"""Every runner that this machine has, in real sandboxes: passed tests are reported by name, and a run that exits early is never believed."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace

import pytest

from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.errors import TaskError
from etude.tasks.running.channel import ParentReport, Prepared
from etude.tasks.running.channels.pytest_channel import interpreter
from etude.tasks.running.parsers import texts
from etude.tasks.running.pin import PackagesUnavailable, default_cache
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.running.supervised import supervised_spec
from etude.tasks.running.testrun import RunReport, Tests, run_tests, verified_run

NODE = "module.exports.f = () => 1;\n"
NODE_TESTS = (
    "const { test, describe, it } = require('node:test');\nconst assert = require('node:assert');\nconst { f } = require('../a.js');\n"
    "test('one', () => assert.equal(f(), 1));\ntest('two', () => assert.equal(f(), 2));\n"
    "describe('group', () => { it('in', () => {}); it('skipped', { skip: true }, () => {}); });\n"
)
GO = {
    "go.mod": "module shop\n\ngo 1.19\n",
    "a.go": "package shop\n\nfunc F() int { return 1 }\n",
    "a_test.go": 'package shop\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal()\n\t}\n}\n\n'
    "func TestTwo(t *testing.T) {\n\tif F() != 2 {\n\t\tt.Fatal()\n\t}\n}\n",
}
CARGO = {
    "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn f() -> i32 { 1 }\n",
    "tests/it.rs": "#[test]\nfn one() { assert_eq!(shop::f(), 1) }\n#[test]\nfn two() { assert_eq!(shop::f(), 2) }\n",
}
UNIT = {
    "a.py": "def f():\n    return 1\n",
    "test_a.py": "import unittest\nimport a\n\n\nclass T(unittest.TestCase):\n    def test_one(self):\n        self.assertEqual(a.f(), 1)\n\n"
    "    def test_two(self):\n        '''It is two.'''\n        self.assertEqual(a.f(), 2)\n",
}
TAPE = {
    "t.js": "console.log('TAP version 13\\n# sums\\nok 1 is one\\nnot ok 2 is two\\nok 3 is one # SKIP\\n1..3'); process.exit(1);\n"
}


async def ran(pool: SandboxPool, tests: Tests, files: dict[str, str], timeout_s: float = 60) -> RunReport:
    async def fresh(tree: dict[str, bytes]):
        return await pool.create(
            supervised_spec(SandboxSpec(files=tree, memory_mb=2048, disk_mb=512, pids=256, env={"HOME": "/tmp"}))
        )

    return await run_tests(tests, {path: text.encode() for path, text in files.items()}, fresh, timeout_s)


def needs(tool: str) -> None:
    if not (shutil.which(tool) or "").startswith("/usr/"):  # what a sandbox sees of the host
        pytest.skip(f"{tool} is not in this machine's system folders")


async def test_node_tells_tests_by_file_and_group_and_an_early_exit_is_not_believed(pool: SandboxPool):
    needs("node")
    tests = Tests(("test/a.test.js",), ("node", "--test", "{files}"), "node")
    files = {"a.js": NODE, "test/a.test.js": NODE_TESTS}
    found, exits = await asyncio.gather(
        ran(pool, tests, files), ran(pool, tests, {**files, "a.js": f"process.exit(0);\n{NODE}"})
    )
    assert found.honest and found.run.passed == {"test/a.test.js::one", "test/a.test.js::group > in"}
    assert found.run.failed == {"test/a.test.js::two", "test/a.test.js::group > skipped"}
    assert found.run.where["test/a.test.js::one"] == "test/a.test.js"
    assert not exits.honest and not exits.run.passed


async def test_node_modules_of_either_kind_get_a_canary(pool: SandboxPool):
    needs("node")
    text = "import test from 'node:test';\nimport { f } from '../a.mjs';\ntest('one', () => { if (f() !== 1) throw new Error(); });\n"
    files = {"a.mjs": "export const f = () => 1;\n", "test/a.test.mjs": text}
    tests = Tests(("test/a.test.mjs",), (), "node")
    assert (await ran(pool, tests, files)).run.passed == {"test/a.test.mjs::one"}
    lying = "import { Test } from 'node:test';\nprocess.on('exit', () => { process.exitCode = 0; });\nglobalThis.Error = class {};\n"
    assert (await ran(pool, tests, {**files, "a.mjs": "process.exit(0);\n" + lying})).run.passed == frozenset()


@pytest.mark.nightly
async def test_go_tells_tests_by_package(pool: SandboxPool):
    needs("go")
    tests = Tests(("a_test.go",), (), "go")
    found = await ran(pool, tests, GO, 240)
    assert found.honest and found.run.passed == {"shop::TestOne"} and found.run.failed == {"shop::TestTwo"}
    exits = {**GO, "a.go": 'package shop\n\nimport "os"\n\nfunc init() { os.Exit(0) }\n\nfunc F() int { return 1 }\n'}
    assert not (await ran(pool, tests, exits, 240)).run.passed


@pytest.mark.nightly
async def test_cargo_tells_tests_by_binary(pool: SandboxPool):
    needs("cargo")
    found = await ran(pool, Tests(("tests/it.rs",), (), "cargo"), CARGO, 240)
    assert found.honest and found.run.passed == {"tests/it.rs::one"} and found.run.failed == {"tests/it.rs::two"}


async def test_unittest_tells_tests_by_class_and_an_early_exit_is_not_believed(pool: SandboxPool):
    tests = Tests(("test_a.py",), (), "unittest")
    found, exits = await asyncio.gather(
        ran(pool, tests, UNIT), ran(pool, tests, {**UNIT, "a.py": "import os\nos._exit(0)\n"})
    )
    assert found.honest and found.run.passed == {"test_a.T::test_one"} and found.run.failed == {"test_a.T::test_two"}
    assert not exits.honest


async def test_tap_tells_assertions_under_the_name_of_their_test(pool: SandboxPool):
    needs("node")
    found = await ran(pool, Tests(("t.js",), (), "tap"), TAPE)
    assert found.run.passed == {"sums > is one"} and found.run.failed == {"sums > is two", "sums > is one #2"}


async def test_an_exit_status_is_believed_if_a_test_that_must_fail_fails(pool: SandboxPool):
    command = ("python3", "-m", "unittest", "test_a")
    good = {**UNIT, "test_a.py": UNIT["test_a.py"].split("    def test_two")[0]}
    tests = Tests(("test_a.py",), command, "exit")
    assert (await ran(pool, tests, good)).honest
    fooled = await ran(pool, tests, {**good, "a.py": "import os\nos._exit(0)\n"})
    assert not fooled.honest and "succeeds though" in fooled.objection


async def test_what_hangs_is_cut_off_and_says_so(pool: SandboxPool):
    tests = Tests(("test_a.py",), (), "unittest")
    found = await ran(pool, tests, {**UNIT, "a.py": "import time\ntime.sleep(600)\n"}, 0.5)
    assert found.run.timed_out and not found.run.passed and not found.honest


async def test_a_daemon_that_outlives_the_run_is_dead_before_its_report_is_read(pool: SandboxPool):
    needs("node")
    forge = (
        "const { spawn } = require('child_process');\nconst text = JSON.stringify({ name: 'two', nesting: 0, good: true, file: '/x' });\n"
        "spawn('sh', ['-c', `while true; do echo '${text}' > /tmp/etude-report; done`], { detached: true, stdio: 'ignore' }).unref();\n"
    )
    tests = Tests(("test/a.test.js",), (), "node")
    found = await ran(pool, tests, {"a.js": forge + NODE, "test/a.test.js": NODE_TESTS})
    assert "test/a.test.js::two" not in found.run.passed


async def test_a_runner_that_is_killed_with_its_parent_has_passed_nothing(pool: SandboxPool):
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"
    found = await ran(pool, Tests(("test_a.py",), (), "unittest"), {**UNIT, "a.py": kill})
    assert not found.honest and not found.run.passed


async def test_a_command_that_is_not_there_is_reported(pool: SandboxPool):
    found = await ran(pool, Tests(("test_a.py",), ("no-such-runner",), "junit"), UNIT)
    assert not found.run.passed and "no-such-runner can't be started" in found.output


def test_the_own_pytest_of_an_environment_is_reported_by_its_command():
    assert interpreter(("/tmp/deps/venv/bin/pytest", "-x", "{files}")) == ("/tmp/deps/venv/bin/python", ["-x"])
    assert interpreter(("python3.11", "-m", "pytest", "{files}")) == ("python3.11", [])
    with pytest.raises(TaskError, match="name another runner"):
        interpreter(("tox", "-e", "py"))


LATER = "def test_b():\n    {}\n\n\ndef test_c():\n    assert True\n"


@pytest.mark.parametrize(
    ("needed", "first", "later"),
    [
        ({"test_a::test_one[0x]"}, "assert False", frozenset()),
        ({"test_a::test_one[0x]"}, "pytest.skip()", frozenset()),
        ({"test_z::test_c"}, "assert False", frozenset({"test_z::test_b", "test_z::test_c"})),
        (set(), "assert False", frozenset({"test_z::test_b", "test_z::test_c"})),
    ],
)
async def test_a_run_ends_at_the_first_needed_test_that_does_not_pass(
    pool: SandboxPool, needed: set[str], first: str, later: frozenset[str]
):
    try:
        spec = with_pytest(SandboxSpec(), default_cache())
    except PackagesUnavailable as error:
        pytest.skip(str(error))

    async def fresh(tree: dict[str, bytes]):
        return await pool.create(replace(spec, files=tree))

    waits = "time.sleep(30)" if not later else "time.sleep(0)"
    files = {
        "test_a.py": f"import pytest\n\n\n@pytest.mark.parametrize('x', [1], ids=['0xabcdef1'])\ndef test_one(x):\n    {first}\n",
        "test_z.py": "import time\n" + LATER.format(waits),
    }
    tests = Tests(("test_a.py", "test_z.py"), needed=frozenset(needed))
    found = await run_tests(tests, {path: text.encode() for path, text in files.items()}, fresh, 60)
    assert found.run.passed == later and found.run.failed == {"test_a::test_one[0x]"} and found.honest
    assert found.run.seconds < 25 and found.run.rc == 1


async def test_the_pinned_pytest_is_not_shadowed_by_modules_of_the_workspace(pool: SandboxPool):
    try:
        spec = with_pytest(SandboxSpec(), default_cache())
    except PackagesUnavailable as error:
        pytest.skip(str(error))

    async def fresh(tree: dict[str, bytes]):
        return await pool.create(replace(spec, files=tree))

    shadows = dict.fromkeys(
        ("pytest.py", "pluggy.py", "hashlib.py", "json.py", "src/traceback.py"), b"import os\nos._exit(0)\n"
    )
    files = {"a.py": b"X = 1\n", "test_a.py": b"import a\n\n\ndef test_one():\n    assert a.X == 1\n", **shadows}
    found = await run_tests(Tests(("test_a.py",)), files, fresh, 60)
    assert found.run.passed == {"test_a::test_one"} and found.honest


def test_a_runner_that_prints_its_report_where_newer_ones_write_it_is_heard() -> None:
    case = {"title": "one", "fullTitle": "g one", "duration": 1, "err": {}}
    report = json.dumps({"stats": {"tests": 1}, "tests": [case], "pending": [], "failures": []}, indent=2)
    printed = f'{{"stats": "of a test"}}\nnoise\n{report}\nleft over'.encode()
    prepared = Prepared(["mocha"], {})
    heard = verified_run("mocha", ParentReport(0, 1.0, (), False, False, "", printed, ()), prepared)
    assert heard.run.passed == {"::g one"} and not heard.objection
    assert not verified_run("mocha", ParentReport(0, 1.0, (), False, False, "", b"nothing", ()), prepared).run.passed


def test_lines_of_tap_that_no_line_closes_cost_as_much_as_others() -> None:
    open_lines = b" ok a\n" * 50_000  # a list that is built again for each line takes minutes for these
    nested = b"".join(b" " * depth + b"ok l%d\n" % depth for depth in range(300, -1, -1))
    (case,) = texts.tap(nested)
    assert not list(texts.tap(open_lines)) and case.name.startswith("l0 > l1 > ") and case.name.endswith(" > l300")


def test_inner_lines_of_tap_keep_their_order_and_outcome() -> None:
    output = b"    ok a\n        not ok b\n    not ok c\n  ok d # skip\nok e\nok f\n"
    assert [(case.name, case.outcome) for case in texts.tap(output)] == [
        ("e > d > a", "passed"),
        ("e > d > c > b", "failed"),
        ("f", "passed"),
    ]
