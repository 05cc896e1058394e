"""Runs of JavaScript that are heard by a status, by bun's report or by our reporter for jasmine; and what is written into test files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from etude.sandbox.spec import WORKDIR
from etude.tasks.running import inside
from etude.tasks.running.channel import ParentReport, Prepared, Tests
from etude.tasks.running.channels.canaries import with_canary, with_failure
from etude.tasks.running.testrun import channel, verified_run

JUNIT = """<testsuites><testsuite name="a.test.ts"><testsuite name="outer"><testcase name="one" classname="outer" file="a.test.ts"/>
<testcase name="canary 12" classname="a.test.ts" file="a.test.ts"><failure/></testcase><testcase name="three" classname="outer" file="a.test.ts">
<skipped/></testcase></testsuite></testsuite></testsuites>"""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no node")


def status(folder: Path, files: Mapping[str, str], entry: str) -> int:
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return subprocess.run(["node", entry], cwd=folder, capture_output=True, timeout=60).returncode


@needs_node
@pytest.mark.parametrize(
    "text",
    [
        "console.log('ok')",
        "process.exit(0)",
        "process.exit()",
        "if (1) { console.log('done'); process.exit( 0 ); }",
        "setTimeout(() => process . exit(0), 1)",
    ],
)
def test_a_program_that_must_fail_fails_wherever_it_ends(text: str, tmp_path: Path) -> None:
    assert status(tmp_path, {"t.js": text}, "t.js") == 0
    planted = with_failure("t.js", text, "12")
    assert planted is not None and status(tmp_path, {"t.js": planted}, "t.js") != 0


@needs_node
def test_code_under_test_that_ends_the_process_with_success_is_seen(tmp_path: Path) -> None:
    planted = with_failure("t.js", "require('./a.js');\nprocess.exit(1)", "12")
    assert planted is not None
    assert status(tmp_path, {"a.js": "process.exit(0)", "t.js": planted}, "t.js") == 0


def test_a_canary_in_typescript_is_not_checked_and_what_a_first_comment_says_stays_first() -> None:
    plain = with_canary("a.test.ts", "it('a')\n", "12", "jest")
    assert plain is not None and plain.startswith("// @ts-nocheck\nit('a')")
    assert "\n// @ts-ignore\n;(" in plain and "?" not in plain, "compilers of 2018 read it"
    said = with_canary("a.test.tsx", "/** @jest-environment jsdom */\nit('a')\n", "12", "jest")
    assert said is not None and said.startswith("/** @jest-environment jsdom */\n// @ts-nocheck\n")
    other = with_canary("a.test.js", "it('a')\n", "12", "jest")
    assert other is not None and "@ts-nocheck" not in other


def test_bun_names_tests_by_file_and_suite_and_its_files_are_paths() -> None:
    prepared = channel("bun").prepare(Tests(("a.test.ts",), (), "bun"), {"a.test.ts": b"test('a')"}, "12", "/work")
    assert prepared.argv[:3] == ["bun", "test", "./a.test.ts"] and b'from "bun:test"' in prepared.files["a.test.ts"]
    answer = ParentReport(1, 1.0, (), False, False, "", b"", (JUNIT.encode(),))
    heard = verified_run("bun", answer, Prepared([], canaries=("12",)))
    assert not heard.objection and heard.run.passed == {"a.test.ts::outer > one"}
    assert heard.run.where == {"a.test.ts::outer > one": "a.test.ts", **{one: "a.test.ts" for one in heard.run.failed}}


@needs_node
def test_jasmine_s_report_has_the_form_of_jest_s(tmp_path: Path) -> None:
    reporter = Path(inside.__file__).with_name("etude_jasmine.cjs").read_text(encoding="utf-8")
    report = tmp_path / "report.json"
    (tmp_path / "reporter.cjs").write_text(reporter.replace("/tmp/etude-report", str(report)), encoding="utf-8")
    calls = (
        f"const FILE = '{WORKDIR}/spec/a.js', r = new (require('./reporter.cjs'))();\n"
        "r.suiteStarted({ description: 'outer' });\n"
        "r.specDone({ description: 'one', status: 'passed', filename: FILE, duration: 4 });\n"
        "r.specDone({ description: 'two', status: 'failed', filename: FILE });\n"
        "r.suiteDone();\n"
        "r.specDone({ description: 'canary 12', status: 'failed' });\n"
        "r.jasmineDone();\n"
    )
    assert status(tmp_path, {"t.cjs": calls}, "t.cjs") == 0
    answer = ParentReport(1, 1.0, (), False, False, "", b"", (report.read_bytes(),))
    heard = verified_run("jasmine", answer, Prepared([], canaries=("12",)))
    assert not heard.objection and heard.run.passed == {"spec/a.js::outer > one"}
    assert heard.run.failed == {"spec/a.js::outer > two"} and json.loads(report.read_text())["testResults"]
