"""How the rules run the tests of a JavaScript project: which runner, which loader, with or without the build, and what they install."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import Runner
from etude.tasks.generate.install.left_out import LEFT_OUT
from etude.tasks.generate.install.pair import RecipeTrial, RuleBuilder, RuleSetter
from etude.tasks.generate.install.rules import node_build, node_install, node_package, node_plan, node_rules
from etude.tasks.generate.install.rules.node_plan import BUILD_FAILED, Builds, plan
from etude.tasks.generate.install.rules.repairs import javascript_wants
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no node")


def project(document: dict, **files: str) -> Fetched:
    tree = {"package.json": json.dumps(document)} | files
    return Fetched(
        CatalogueProject("thing", "npm", "1.0", "javascript"), {k: v.encode() for k, v in tree.items()}, "npm thing"
    )


def scripted(test: str, **files: str) -> Fetched:
    return project({"name": "thing", "main": "dist/index.js", "scripts": {"test": test, "build": "tsc"}}, **files)


SOURCE = {"src/index.ts": "export const a = 1;"}


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("node --inspect-brk jest --runInBand", ("jest",)),
        ("node --inspect --experimental-vm-modules jest", ("env", "NODE_OPTIONS=--experimental-vm-modules", "jest")),
        (
            "NODE_ENV=test A=1 node --watch --experimental-vm-modules node_modules/jest/bin/jest.js --watchAll",
            ("env", "A=1", "node", "--experimental-vm-modules", "node_modules/jest/bin/jest.js"),
        ),
        ("node --inspect-brk=9229 node_modules/.bin/mocha -r esm", ("node", "node_modules/.bin/mocha", "-r", "esm")),
    ],
)
def test_no_debugger_and_no_change_is_waited_for(command: str, argv: tuple[str, ...]) -> None:
    found = plan(scripted(command, **{"test/a.test.js": "test('a', () => {})"}))
    assert found.command[: len(argv)] == argv and not any(
        "inspect" in word or "watch" in word for word in found.command
    )


@pytest.mark.parametrize(
    ("text", "builds"),
    [
        ("import { a } from '../src/index';\ntest('a')", ()),
        ("import { a } from '../src/index.js';\ntest('a')", ()),
        ("import { a } from 'thing';\ntest('a')", ("tsc",)),
        ("import { a } from 'thing/part';\ntest('a')", ("tsc",)),
        ("const a = require('..');\ntest('a')", ("tsc",)),
        ("import { a } from '../dist/index.js';\ntest('a')", ("tsc",)),
        ("import { a } from '../src';\ntest('a')", ()),
        ("import { a } from '../parts/';\ntest('a')", ("tsc",)),
        ("spawn('node', ['dist/cli.js']);\ntest('a')", ("tsc",)),
    ],
)
def test_a_build_runs_before_tests_that_reach_what_it_makes_and_before_no_others(
    text: str, builds: tuple[str, ...]
) -> None:
    files = scripted("vitest", **SOURCE, **{"test/a.test.ts": text, "parts/one.ts": "export const a = 1;"}).texts()
    assert node_plan.builds_of(files).commands == builds


def test_a_build_is_needed_where_a_helper_of_the_tests_imports_what_it_makes() -> None:
    files = {"test/a.test.js": "require('./load');\ntest('a')", "test/load.js": "module.exports = require('../dist/x')"}
    assert node_build.needs_build(files, ["test/a.test.js"], in_script=False)


def test_the_other_choice_drops_strictness_where_a_build_is_needed_and_builds_where_it_is_not() -> None:
    needed = scripted("mocha", **SOURCE, **{"test/a.js": "require('../dist/index');\nit('a')"}).texts()
    assert node_plan.builds_of(needed, other=True) == Builds(("tsc",), strict=False)
    idle = scripted("mocha", **SOURCE, **{"test/a.js": "require('../src/index');\nit('a')"}).texts()
    assert node_plan.builds_of(idle, other=True) == Builds(("tsc",), strict=False)


def test_a_build_that_fails_is_tried_without_and_one_that_is_missed_with() -> None:
    needed = scripted("mocha", **SOURCE, **{"test/a.js": "require('../dist/index');\nit('a')"})
    assert node_rules.other_build(needed, [BUILD_FAILED]) and not node_rules.other_build(needed, ["1 failing"])
    idle = scripted("mocha", **SOURCE, **{"test/a.js": "require('../src/index');\nit('a')"})
    assert node_rules.other_build(idle, ["Error: Cannot find module '../lib/x'"])
    assert not node_rules.other_build(idle, ["Error: Cannot find module 'chai'"])


def test_a_try_with_the_other_choice_runs_the_goal_in_the_same_way_as_its_plan() -> None:
    found = scripted("mocha", **SOURCE, **{"test/a.js": "require('../dist/index');\nit('a')"})
    goals = asyncio.run(RuleSetter().goals(found))
    builder = RuleBuilder("2026-01-01")
    first = asyncio.run(builder.build(found, goals, []))
    second = asyncio.run(builder.build(found, goals, [RecipeTrial(first, "the suite broke", BUILD_FAILED)]))
    assert first.tests != second.tests and node_plan.suite(second.tests) in second.goals
    assert second.goals[1:] == first.goals[1:]


def test_words_of_another_shell_and_tools_of_developers_are_no_build() -> None:
    files = {"test/a.test.js": "require('../dist/a')\ntest('a')"}
    document = {"scripts": {"test": "jest", "build": "rimraf dist && SET NODE_ENV=production && gulp build"}}
    assert node_plan.builds_of(project(document, **files).texts()).commands == ("gulp build",)
    document = {"scripts": {"test": "jest", "prepare": "husky install"}}
    assert node_plan.builds_of(project(document, **files).texts()).commands == ()


@pytest.mark.parametrize(
    ("test", "text", "runner", "command"),
    [
        ("node test.js", "console.log('ok')", "exit", "node {files}"),
        ("node test.js", "require('tape')('a')", "tap", "node {files}"),
        ("node test.js", "require('node:test')('a')", "node", "node --test {files}"),
        ("tap test.js", "require('tap').test('a')", "tap", "node {files}"),
        ("uvu", "import { test } from 'uvu'", "exit", "node {files}"),
        ("jasmine", "it('a')", "jasmine", "jasmine {files}"),
        ("node --import tsx test.js", "console.log('ok')", "exit", "node --import tsx {files}"),
        ("node --import tsx --test test.js", "require('node:test')('a')", "node", "node --import tsx --test {files}"),
        ("node -r esm node_modules/tape/bin/tape test.js", "require('tape')('a')", "tap", "node -r esm node_modules/tape/bin/tape {files}"),
        ("_mocha -R spec", "it('a')", "mocha", "mocha {files}"),
        ("react-scripts test --env=jsdom", "it('a')", "jest", "react-scripts test --env=jsdom {files}"),
        ("bun test ./test", "import { test } from 'bun:test'", "bun", f"node_modules/{node_plan.BUN}/bin/bun test {{files}}"),
        ("node --experimental-strip-types --test", "require('node:test')('a')", "node", "node --test {files}"),
    ],
)  # fmt: skip
def test_the_runner_follows_from_the_script_and_from_what_the_files_import(
    test: str, text: str, runner: str, command: str
) -> None:
    found = plan(project({"scripts": {"test": test}}, **{"test.js": text}))
    assert (found.runner, " ".join(found.command)) == (runner, command)


@given(
    st.lists(
        st.sampled_from(
            "node tsx ts-node jest mocha bun test uvu tap --import -r --test a.js jasmine craco npx run".split()
        ),
        max_size=6,
    )
)
def test_every_script_leads_to_a_runner_that_there_is(words: list[str]) -> None:
    found = plan(project({"scripts": {"test": " ".join(words)}}, **{"a.js": "require('tape')"}))
    assert found.runner in get_args(Runner) and found.command[-1] == "{files}"


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        ("describe('a', () => { it('b') })", "mocha"),
        ("const { expect } = require('chai');\ndescribe('a', () => { expect(1) })", "mocha"),
        ("describe('a', () => { expect(1).toBe(1) })", "jest"),
        ("import { describe } from 'node:test';\ndescribe('a')", "node"),
    ],
)
def test_a_runner_that_is_not_known_gives_way_to_the_one_whose_words_the_files_use(text: str, runner: str) -> None:
    found = plan(project({"scripts": {"test": "owntest run tests/**"}}, **{"tests/a.test.js": text}))
    assert found.runner == runner


def test_all_programs_of_a_script_run_one_after_the_other_and_one_failure_is_a_failure() -> None:
    files = {"test/a.js": "assert(1)", "test/b.js": "assert(2)"}
    found = plan(project({"scripts": {"test": "node test/a.js && node test/b.js"}}, **files))
    assert found.command[:2] == ("sh", "-c") and "|| failed=1" in found.command[2] and found.files == tuple(files)


@pytest.mark.parametrize(("version", "runner"), [("^2.4.1", "exit"), ("~3.99.0", "jasmine"), ("^5", "jasmine")])
def test_a_jasmine_that_takes_no_reporter_is_known_by_its_status(version: str, runner: str) -> None:
    document = {"scripts": {"test": "jasmine"}, "devDependencies": {"jasmine": version}}
    found = plan(project(document, **{"spec/a.js": "it('a')"}))
    assert found.runner == runner and found.command == ("jasmine", "{files}")


def test_typescript_tests_get_a_loader_where_the_project_names_none() -> None:
    files = {"src/a.test.ts": "it('a')"}
    assert node_plan.LOAD in plan(project({"scripts": {"test": "mocha lib"}}, **files)).command
    assert node_plan.LOAD not in plan(project({"scripts": {"test": "mocha -r ts-node/register"}}, **files)).command
    configured = files | {".mocharc.json": '{"import": "tsx"}'}
    assert node_plan.LOAD not in plan(project({"scripts": {"test": "mocha"}}, **configured)).command
    assert node_plan.LOAD not in plan(project({"scripts": {"test": "vitest"}}, **files)).command


def test_a_script_whose_program_only_a_build_would_make_is_passed_over() -> None:
    document = {"scripts": {"test": "node ./out/test/run.js", "test:unit": "mocha"}}
    assert plan(project(document, **{"src/test/a.test.ts": "it('a')"})).runner == "mocha"


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("src/utils/a.test.ts", True),
        ("test/utils/load.js", False),
        ("specs/a.js", True),
        ("src/__test__/a.ts", True),
        ("test-json.js", False),
        ("e2e/login.spec.ts", False),
        ("test/fixtures/a.test.js", False),
    ],
)
def test_files_are_tests_by_their_own_name_before_their_folder_s(path: str, counts: bool) -> None:
    assert node_plan.tests({path: "it('a')"}) == ([path] if counts else [])


def test_compiled_tests_count_only_where_their_sources_are_not_there_and_browsers_never() -> None:
    both = {"dist/a.test.js": "it('a')", "src/a.test.ts": "it('a')"}
    assert node_plan.tests(both) == ["src/a.test.ts"]
    assert node_plan.tests({"dist/a.test.js": "it('a')"}) == ["dist/a.test.js"]
    browser = {"tests/a.spec.ts": "import { test } from '@playwright/test';\ntest('a')", "tests/b.spec.ts": "it('b')"}
    assert node_plan.tests(browser) == ["tests/b.spec.ts"]


def test_tools_are_installed_only_where_a_file_imports_them_and_builders_where_the_build_runs() -> None:
    document = {"devDependencies": {"eslint": "^9", "rollup": "^4", "mocha": "^10", "prettier": "^3"}}
    assert set(node_package.needs(document)) == {"mocha"}
    assert set(node_package.needs(document, True, {"eslint"})) == {"mocha", "rollup", "eslint"}


def test_the_runner_is_installed_where_the_project_does_not_list_it() -> None:
    steps = "\n".join(node_rules.steps(project({"scripts": {"test": "mocha"}}, **{"test/a.ts": "it('a')"})))
    assert '"mocha": "*"' in steps and '"tsx": "*"' in steps


def test_what_an_error_asks_for_has_the_version_of_what_it_is_a_part_of() -> None:
    found = project({"devDependencies": {"jest": "^26"}, "scripts": {"test": "jest"}}, **{"test/a.js": "it('a')"})
    steps = "\n".join(node_rules.steps(found, ["jest-environment-jsdom", "chai"]))
    assert '"jest-environment-jsdom": "^26"' in steps and '"chai": "*"' in steps


def test_a_listed_package_that_is_missed_all_the_same_is_asked_for_at_any_version() -> None:
    found = project({"devDependencies": {"jest": "^26", "chai": "^9"}}, **{"test/a.test.js": "it('a')"})
    assert '"chai": "*"' in "\n".join(node_rules.steps(found, ["chai"]))
    assert '"chai": "^9"' in "\n".join(node_rules.steps(found))


def test_where_not_all_can_be_installed_at_once_each_is_tried_and_what_can_t_be_had_is_left_out() -> None:
    document = {"devDependencies": {"helper": "^1", "jest": "^29"}, "dependencies": {"own": "^2"}}
    found = project(document, **{"test/a.test.js": "it('a')"})
    steps = "\n".join(node_rules.steps(found, plain=True))
    assert LEFT_OUT in steps and all(one in steps for one in ("helper@^1", "jest@^29", "own@^2"))


@pytest.mark.parametrize(
    ("engines", "installed"),
    [({"node": ">=22"}, "^22"), ({"node": "^20.19.0 || >=22.12"}, ""), ({"node": "22 || 24"}, "^22"), ("old", ""), ({}, ""), ({"node": "*"}, "")],
)  # fmt: skip
def test_a_newer_node_than_the_machine_s_is_installed_where_the_project_asks_for_one(
    engines: object, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_install, "own_node", lambda: 20)
    steps = "\n".join(node_rules.steps(project({"engines": engines}, **{"test/a.js": "it('a')"})))
    assert (f'"{node_install.NODE}": "{installed}"' in steps) if installed else (node_install.NODE not in steps)


@pytest.mark.parametrize(
    ("said", "newer"),
    [
        ("TypeError: new Map().keys(...).toArray is not a function", True),
        ("Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite", True),
        ("node: bad option: --experimental-sqlite", True),
        (f'TypeError [ERR_UNKNOWN_FILE_EXTENSION]: Unknown file extension ".ts" for {WORKDIR}/a.ts', True),
        ("TypeError: own.method is not a function", False),
    ],
)
def test_what_only_a_newer_node_has_asks_for_one(said: str, newer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_rules, "own_node", lambda: 20)
    found = project({}, **{"test/a.js": "it('a')"})
    wanted = node_rules.learned(found, said, ())
    assert wanted == ([node_install.NODE] if newer else [])
    assert (f'"{node_install.NODE}": "^24"' in "\n".join(node_rules.steps(found, wanted))) is newer


def test_what_developers_run_counts_only_where_the_package_names_no_node() -> None:
    typed = {"devDependencies": {"@types/node": "^24.1"}}
    assert node_package.required_node(project(typed).texts()) == 24
    assert node_package.required_node(project(typed | {"engines": {"node": ">=18"}}).texts()) == 18
    assert node_package.required_node(project({}, **{".nvmrc": "v22.3.0\n"}).texts()) == 22
    assert node_package.required_node(project({}, **{".nvmrc": "lts/*"}).texts()) == 0


NPM = """#!/bin/sh
for word in "$@"; do case $word in *gone*) exit 1;; helper*|kept*) echo "$word" >> installed; single=1;; esac; done
[ "$single" ] && exit 0
grep -q '"gone"' package.json && echo "npm error 404  The requested resource 'gone@^1' could not be found" >&2 && exit 1
grep -q '"old": *"^9"' */package.json && echo "npm error notarget No matching version found for old@^9." >&2 && exit 1
grep -q '"broken"' package.json && echo "npm error ERESOLVE" >&2 && exit 1
cp package.json installed
"""


@needs_node
@pytest.mark.parametrize(
    ("asked", "singly", "status", "left", "installed"),
    [
        ({"gone": "^1", "kept": "^2"}, {}, 0, ["gone@^1", "old@^9"], '"kept"'),
        ({"broken": "1"}, {}, 1, ["old@^9"], ""),
        ({"broken": "1"}, {"gone": "^1", "kept": "^2"}, 0, ["old@^9", "gone@^1"], "kept@^2"),
    ],
)
def test_what_the_registry_does_not_have_is_left_out_and_named(
    asked: dict, singly: dict, status: int, left: list[str], installed: str, tmp_path: Path
) -> None:
    step = node_install.install_step(["", "part"], singly).replace(node_install.PLACE, str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text(NPM)
    (tmp_path / "bin" / "npm").chmod(0o755)
    for folder, needs in (("", asked), ("part", {"old": "^9"})):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "package.json").write_text(json.dumps({"dependencies": needs}))
    words = ["sh", "-c", step.replace(LEFT_OUT, str(tmp_path / "left-out"))]
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    assert subprocess.run(words, env=env, timeout=60, stderr=subprocess.DEVNULL).returncode == status
    assert (tmp_path / "left-out").read_text().splitlines() == left
    assert json.loads((tmp_path / "part" / "package.json").read_text())["dependencies"] == {"old": "*"}
    assert installed in ((tmp_path / "installed").read_text() if installed else "")


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("Preset ts-jest not found.", ["ts-jest"]),
        ("Test environment jest-environment-jsdom cannot be found. Make sure", ["jest-environment-jsdom"]),
        ("MISSING DEPENDENCY  Cannot find dependency 'jsdom'", ["jsdom"]),
        ('Failed to resolve import "@vue/test-utils" from "src/a.ts"', ["@vue/test-utils"]),
        ('Error: Failed to import module "unrun". Please ensure it is installed.', ["unrun"]),
        ("error TS2688: Cannot find type definition file for 'node'.", ["@types/node"]),
        ("Cannot find name 'it'. Try `npm i --save-dev @types/jest`", ["@types/jest"]),
        ("Cannot find module './own'", []),
        ("Cannot find package 'bun:test' imported from a.ts", []),
        ("the module was not found", []),
    ],
)
def test_what_is_missing_is_read_from_the_words_of_every_runner(said: str, names: list[str]) -> None:
    assert javascript_wants(said, ()) == names


def test_a_folder_of_the_tree_and_a_part_of_an_editor_are_no_packages() -> None:
    found = project({"devDependencies": {"tsup": "^8"}}, **{"src/a.ts": ""})
    said = "Cannot find module 'src/a'\nCannot find module 'vscode'\nsh: 1: tsup: not found\nsh: 1: make: not found"
    assert node_rules.learned(found, said, ()) == ["tsup"]


@pytest.mark.parametrize("text", ["import a from './a'", "export const a = <div/>", "// @flow\nconst a: string = ''"])
def test_no_goal_asks_node_to_read_what_only_a_compiler_reads(text: str) -> None:
    goals = node_rules.goals(project({"main": "dist/x.js"}, **{"src/index.js": text}))
    assert not any("--check" in goal.command or "require.resolve" in goal.command for goal in goals)


def test_a_list_of_several_manners_ends() -> None:
    found, tried = replace(scripted("mocha", **SOURCE, **{"test/a.js": "it('a')"}), released="2025-05-05"), []
    builder = RuleBuilder("2026-01-01")
    for _ in range(5):
        tried.append(RecipeTrial(asyncio.run(builder.build(found, [], tried)), "step `x` ended with 1"))
    assert len({one.recipe.digest for one in tried}) == 5


def test_a_file_that_imports_the_tests_of_its_folder_is_run_by_their_runner() -> None:
    listed = {"test/index.js": "import './io/text.js'\n", "lib.js": "import tap from 'tap'\n"}
    text = "import test from 'node:test'\nimport '../../lib.js'\ntest('a', () => {})\n"
    own = project(
        {"scripts": {"test": "node --conditions development test/index.js"}}, **listed, **{"test/io/text.js": text}
    )
    assert plan(own).runner == "node" and plan(own).files == ("test/index.js",)
    assert plan(own).command == ("node", "--conditions", "development", "--test", "{files}")
    bare = project(
        {"scripts": {"test": "node test/index.js"}},
        **{"test/index.js": "import '../lib.js'\n", "lib.js": "require('tap')"},
    )
    assert plan(bare).runner == "exit"
