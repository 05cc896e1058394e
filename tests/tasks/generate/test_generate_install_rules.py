"""What the embedded pair reads out of a tree, and what it learns from what failed."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.environment.environment import TestPlan
from etude.tasks.errors import TaskError
from etude.tasks.generate.install.goal import MOST_CHARS, TEN, Goal, cause, choose_goals
from etude.tasks.generate.install.pair import RecipeTrial, RuleBuilder, RuleSetter
from etude.tasks.generate.install.recipe import InstallRecipe, read_recipe
from etude.tasks.generate.install.rules import (
    go_rules,
    node_plan,
    node_rules,
    node_script,
    python_layout,
    python_rules,
    python_version,
)
from etude.tasks.generate.install.rules.node_package import workspaces
from etude.tasks.generate.install.rules.outside import without_services
from etude.tasks.generate.install.rules.python_needs import test_requirements as requirements
from etude.tasks.generate.install.rules.repairs import javascript_wants, python_wants
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject, read_projects

PYPROJECT = '[project]\nname="Thing_One"\n[project.optional-dependencies]\ntest=["pytest"]\n[project.scripts]\nthing="thing:main"\n'


def python(**files: str) -> Fetched:
    tree = {"src/thing/__init__.py": "x = 1\n", "tests/test_x.py": "def test_x(): pass\n", "pyproject.toml": PYPROJECT}
    return Fetched(
        CatalogueProject("thing-one", "sdist", "1.0"), {k: v.encode() for k, v in (tree | files).items()}, "sdist thing"
    )


def javascript(package: dict, **files: str) -> Fetched:
    tree = {"package.json": json.dumps(package)} | files
    return Fetched(
        CatalogueProject("thing", "npm", "1.0", "javascript"), {k: v.encode() for k, v in tree.items()}, "npm thing"
    )


def recipe() -> InstallRecipe:
    plan = TestPlan("pytest", (), ("tests/test_x.py",))
    return InstallRecipe(
        "thing", "1.0", "python", "ab", ("true",), plan, {"A": "b"}, "2024-01-01", ("ls",), deny=("thing",)
    )


def test_three_goals_are_drawn_by_the_seed_and_a_suite_is_always_among_them() -> None:
    goals = [Goal(str(n), "") for n in range(9)] + [Goal("suite", "", tests=True)]
    for seed in map(str, range(50)):
        three = choose_goals(goals, seed)
        assert len(set(three)) == 3 and three[0].tests and three == choose_goals(goals, seed)


@given(
    st.lists(st.builds(Goal, st.text(min_size=1), st.text(), tests=st.booleans()), max_size=TEN, unique=True), st.text()
)
def test_never_more_goals_are_drawn_than_there_are(goals: list[Goal], seed: str) -> None:
    drawn = choose_goals(goals, seed)
    assert len(drawn) == min(3, len(goals)) and set(drawn) <= set(goals)


@pytest.mark.parametrize(
    ("output", "good"),
    [
        ("1 failed, 12 passed in 1s", True),
        ("12 failed, 1 passed in 1s", False),
        ("3 passing\n 2 failing", True),
        ("# pass 0\n# fail 2", False),
        (" 5 pass\n 1 fail\nRan 6 tests", True),
        ("3 passing\nconnection to localhost:6379 failed", True),
        ("3 specs, 1 failure", True),
        ("3 specs, 2 failures", False),
    ],
)
def test_a_suite_of_which_most_tests_fail_does_not_behave(output: str, good: bool) -> None:
    assert (Goal("suite", "", status=None, tests=True).objection(1, output) == "") is good


@pytest.mark.parametrize(
    "said",
    ["getaddrinfo ENOTFOUND www.example.com", "connect ECONNREFUSED 127.0.0.1:6379", "AxiosError: socket hang up"],
)
def test_the_reason_says_that_tests_ask_the_network(said: str) -> None:
    goal = Goal("suite", "", status=None, tests=True)
    assert "its tests ask the network, or a server" in goal.objection(1, f"# pass 0\n# fail 1\n{said}")
    assert "network" not in goal.objection(1, "# pass 0\n# fail 1\nAssertionError: 1 == 2")


def test_a_goal_says_the_status_and_the_output_that_were_not_the_described_ones() -> None:
    assert "status 2, not 0: boom" in Goal("a", "").objection(2, "boom")
    assert "nothing like 'x+'" in Goal("a", "a row of x", "x+").objection(0, "yyy")


def test_python_goals_ask_for_the_suite_the_working_tree_s_own_code_and_the_entry_point() -> None:
    commands = [goal.command for goal in python_rules.goals(python())]
    assert len(commands) <= TEN and any("tests/test_x.py" in one for one in commands)
    assert any("import thing" in one for one in commands) and "thing --help" in commands


def test_every_name_the_project_goes_by_is_denied() -> None:
    assert python_layout.distribution("thing-two", python().texts()) == ["thing-one", "thing-two"]


def test_one_file_of_tests_counts_by_its_name_only_where_pytest_would_collect_nothing() -> None:
    assert python_layout.tests(["thing/tests/tests.py", "docs/test.py"]) == ["thing/tests/tests.py"]
    assert python_layout.tests(["test.py", "tests/test_x.py"]) == ["tests/test_x.py"]


def test_the_rules_try_what_was_on_the_index_at_the_release_before_they_give_up() -> None:
    project, tried, builder = replace(python(), released="2020-05-05"), [], RuleBuilder("2026-01-01")
    with pytest.raises(ProjectDiscarded, match="nothing more to try: the suite broke"):
        while len(tried) < TEN:
            tried.append(RecipeTrial(asyncio.run(builder.build(project, [], tried)), "the suite broke"))
    assert [one.recipe.until for one in tried][:2] == ["2026-01-01", "2020-05-05"]
    assert len({one.recipe.digest for one in tried}) == len(tried)


def test_a_source_layout_is_imported_from_its_folder() -> None:
    assert python_layout.root(["src/a/__init__.py"]) == "src" and python_layout.root(["a/__init__.py"]) == ""


def test_requirements_are_those_of_tests_without_tools_options_and_pins() -> None:
    files = {
        "requirements-test.txt": "-r other.txt\nfreezegun==1.0  # dates\nblack\n",
        "tox.ini": "[testenv]\ndeps =\n    py310: mock\n    {posargs}\n",
        "pyproject.toml": '[dependency-groups]\ntest=["hypothesis>=6", {include-group="more"}]\nmore=["attrs"]\n',
    }
    assert sorted(requirements(files)) == ["attrs", "freezegun", "hypothesis>=6", "mock"]


def test_a_missing_module_asks_for_its_distribution_once() -> None:
    said = "ModuleNotFoundError: No module named 'yaml'\nModuleNotFoundError: No module named 'freezegun.api'\nfixture 'mocker' not found"
    assert python_wants(said, {"freezegun"}) == ["pyyaml", "pytest-mock"]
    assert javascript_wants("Error: Cannot find module '@a/b/c'\nCannot find module './own'", ()) == ["@a/b"]


def test_the_project_s_own_missing_modules_are_not_taken_from_an_index() -> None:
    assert python_rules.learned(python(), "ModuleNotFoundError: No module named 'thing'", ()) == []


@pytest.mark.parametrize(
    ("script", "runner"),
    [("jest --ci", "jest"), ("mocha -R dot", "mocha"), ("tape test/*.js", "tap"), ("node --test", "node")],
)
def test_the_runner_is_the_one_that_package_json_names(script: str, runner: str) -> None:
    files = {"test/a.js": "test('a')", "test/fixtures/b.js": "test('b')"}
    plan = node_plan.plan(javascript({"scripts": {"test": script}}, **files))
    assert (plan.runner, plan.files) == (runner, ("test/a.js",))


@pytest.mark.parametrize(
    ("scripts", "command"),
    [
        ({"test": "node --conditions development test/a.js"}, "node --conditions development --test {files}"),
        ({"test": "c8 --100 npm run api", "api": "node -C dev test/a.js"}, "node -C dev --test {files}"),
        ({"test": "tsx --test test/a.js"}, "node --import tsx --test {files}"),
        ({"test": "eslint . && A=--b jest --coverage -c j.json"}, "env A=--b jest -c j.json {files}"),
        ({"test": "node --no-warnings node_modules/jest/bin/jest.js"}, "node --no-warnings node_modules/jest/bin/jest.js {files}"),
        ({"test": "mocha -r ts-node/register --reporter dot 'test/*.js'"}, "mocha -r ts-node/register {files}"),
        ({"test": "vitest --coverage"}, "vitest run {files}"),
        ({"test": "run-s lint test:*", "lint": "xo", "test:unit": "ava"}, "ava --tap {files}"),
        ({"test": "npm run build && npm run unit", "build": "tsc", "unit": "node --test test"}, "node --test {files}"),
    ],
)  # fmt: skip
def test_tests_run_with_the_options_of_the_project_s_own_script(scripts: dict[str, str], command: str) -> None:
    plan = node_plan.plan(
        javascript({"scripts": scripts}, **{"test/a.js": "import { test } from 'node:test';\ntest('a')"})
    )
    assert " ".join(plan.command) == command and plan.files == ("test/a.js",)


def test_the_build_runs_before_every_run_of_tests_that_need_it_and_only_then() -> None:
    scripts = {"build": "npm run build:js && npm run build:types", "build:js": "node build.js", "build:types": "tsc"}
    scripts["test"] = "rimraf lib && npm run build && node --test"
    tests = {"test/a.js": "import { a } from '../lib/a.js';\ntest('a')"}
    built = node_plan.plan(javascript({"scripts": scripts}, **tests))
    assert built.command[:2] == ("sh", "-c") and built.command[2].startswith("{ node build.js; } >&2 ||")
    assert built.command[-3:] == ("node", "--test", "{files}")
    there = node_plan.plan(javascript({"scripts": scripts}, **tests, **{"lib/a.js": "export const a = 1"}))
    assert there.command == ("node", "--test", "{files}")


def test_typescript_tests_are_tests_and_declarations_and_data_are_not() -> None:
    files = {
        "src/a.test.ts": "test('a')",
        "test/b.tsx": "it('b')",
        "test/types.d.ts": "declare const x: 1",
        "test/rules.js": "module.exports = [1]",
    }
    assert node_plan.tests(files) == ["src/a.test.ts", "test/b.tsx"]


def test_all_commands_of_a_script_that_run_alike_give_their_files() -> None:
    scripts = {
        "test": "npm run one && npm run two",
        "one": "node --test test/a.js",
        "two": "node --test test/unit/*.js",
    }
    files = {"test/a.js": "test('a')", "test/unit/b.js": "test('b')", "test/bench.js": "test('no')"}
    assert node_plan.plan(javascript({"scripts": scripts}, **files)).files == ("test/a.js", "test/unit/b.js")


@given(
    st.dictionaries(
        st.sampled_from(["test", "pretest", "build", "a", "b"]), st.text("ab &|;'\"npmrun-tes", max_size=30)
    )
)
def test_no_script_of_a_repository_is_more_than_the_rules_can_read(scripts: dict[str, str]) -> None:
    node_script.read_test_script({**scripts, "a": "npm run b", "b": "npm run a && npm test"})


@given(st.text("a*?{},/.[]()", max_size=12))
def test_any_glob_of_a_script_can_be_read(pattern: str) -> None:
    node_script.glob(pattern).fullmatch("a/b.js")


def test_globs_of_scripts_mean_files_at_any_depth_and_alternatives() -> None:
    shape = node_script.glob("test/**/*.{js,ts}")
    assert shape.fullmatch("test/a.js") and shape.fullmatch("test/x/y/a.ts") and not shape.fullmatch("src/a.js")


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["test", "dependencies", "build", "a"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(["scripts", "dependencies", "devDependencies", "exports", "main", "workspaces", "name"]), ODD
    )
)
def test_no_package_json_of_a_repository_ends_an_install(document: dict) -> None:
    project = javascript(document, **{"test/a.js": "test('a')", "packages/a/package.json": json.dumps(document)})
    with suppress(ProjectDiscarded):
        asyncio.run(RuleSetter().goals(project))
        asyncio.run(RuleBuilder("2026-01-01").build(project, [], []))


TABLES = st.sampled_from(
    ["[project]", "[tool]", "[tool.poetry]", "[tool.hatch.envs]", "[dependency-groups]", "[tool.setuptools_scm]"]
)
VALUES = st.sampled_from(
    [
        "project = 3",
        "scripts = 1",
        "dependencies = 'a'",
        "optional-dependencies = [1]",
        "group = 2",
        "envs = []",
        "version_file = 4",
        "test = [{a = 1}]",
    ]
)


@given(st.dictionaries(TABLES, VALUES))
def test_no_pyproject_of_a_repository_ends_an_install(tables: dict[str, str]) -> None:
    project = python(**{"pyproject.toml": "".join(f"{table}\n{value}\n" for table, value in tables.items())})
    with suppress(ProjectDiscarded):
        asyncio.run(RuleSetter().goals(project))
        asyncio.run(RuleBuilder("2026-01-01").build(project, [], []))


def test_a_version_that_the_build_asks_git_for_is_the_tag_s() -> None:
    scm = '[build-system]\nrequires=["hatch-vcs"]\n[tool.hatch.build.hooks.vcs]\nversion-file="src/thing/_v.py"\n'
    steps = "\n".join(python_rules.steps(python(**{"pyproject.toml": scm})))
    assert "SETUPTOOLS_SCM_PRETEND_VERSION=1.0 " in steps and "cp /tmp/deps/build/src/thing/_v.py" in steps
    assert "PRETEND" not in "\n".join(python_rules.steps(python()))
    tagged = replace(python(), wanted=CatalogueProject("thing", "git", "0a1b2c3d4e"), described="thing-v2.3.1")
    assert python_version.version(tagged) == "2.3.1"
    assert python_version.version(replace(tagged, described="")) == python_version.UNKNOWN


def test_a_project_that_does_not_build_is_imported_from_its_tree_with_its_requirements() -> None:
    broken = python(**{"pyproject.toml": PYPROJECT.replace("[project.opt", 'dependencies=["attrs"]\n[project.opt')})
    builder, tried = RuleBuilder("2026-01-01"), []
    first = asyncio.run(builder.build(broken, [], tried))
    tried.append(
        RecipeTrial(
            first, f"step `cp -r {node_rules.WORKDIR} /tmp/deps/build && …` ended with 1: Multiple top-level packages"
        )
    )
    second = asyncio.run(builder.build(broken, [], tried))
    assert any("/deps/build" in one for one in first.steps) and not any("cp -r" in one for one in second.steps)
    assert any("'attrs'" in one for one in second.steps)
    assert any("from thing import main" in one and "bin/thing" in one for one in second.steps)


def test_go_modules_are_fetched_only_where_go_mod_asks_for_some() -> None:
    go = lambda text: Fetched(
        CatalogueProject("thing", "git", "v1", "go"), {"go.mod": text.encode(), "a_test.go": b"package a"}, "git"
    )
    assert "go mod download" in go_rules.steps(go("module a\n\nrequire b v1.0.0\n"))
    assert "go mod download" not in go_rules.steps(go("module a\n"))
    assert go_rules.plan(go("module a\n")).files == ("a_test.go",)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("x\na.h:1:2: fatal error: cups/http.h: No such file or directory\ncompilation terminated.\n", "cups/http.h"),
        ("ok\nError: Cannot find module './lib/a.js'\n at x\n" + "at frame\n" * 50, "lib/a.js"),
        ("LookupError: setuptools-scm was unable to detect version\n" + "note\n" * 90, "unable to detect version"),
        ("plain words", "plain words"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_reason_of_a_failure_holds_the_line_that_says_why(output: str, why: str) -> None:
    assert why in cause(output) and len(cause(output)) <= MOST_CHARS


def test_packages_of_a_workspace_are_links_to_the_working_tree_and_not_of_the_registry() -> None:
    whole = {"name": "all", "workspaces": ["packages/*"]}
    members = {
        "packages/a/package.json": '{"name": "@s/a"}',
        "packages/b/package.json": '{"name": "b", "dependencies": {"@s/a": "^1.0.0"}}',
    }
    project = javascript(whole, **members)
    steps = "\n".join(node_rules.steps(project))
    assert workspaces(project.texts()) == {"@s/a": "packages/a", "b": "packages/b"}
    assert f"ln -sfn {node_rules.WORKDIR}/packages/a /tmp/deps/js/node_modules/@s/a" in steps
    assert '"@s/a": "^1.0.0"' not in steps


def test_a_runner_that_needs_the_project_itself_is_distinguished_from_other_refusals() -> None:
    project = javascript({"name": "minimist"})
    assert node_rules.needs_itself(project, "npm error 403 GET http://127.0.0.1/npm/minimist")
    assert not node_rules.needs_itself(project, "npm error 403 GET http://127.0.0.1/npm/minimist-options")


def test_a_recipe_reads_as_it_was_written_and_betrays_a_change_by_hand() -> None:
    text = recipe().to_toml()
    assert read_recipe(text) == recipe()
    with pytest.raises(TaskError, match="changed by hand"):
        read_recipe(text.replace('"true"', '"false"'))


def test_a_snapshot_is_named_by_tree_and_steps_not_by_who_built_it() -> None:
    whole = {name: getattr(recipe(), name) for name in recipe().__dataclass_fields__}
    assert InstallRecipe(**{**whole, "builder": "model", "goals": ()}).snapshot == recipe().snapshot
    assert InstallRecipe(**{**whole, "tree": "cd"}).snapshot != recipe().snapshot


@pytest.mark.parametrize(
    ("row", "said"),
    [('name="a"\nkind="svn"\nversion="1"', "kind 'svn'"), ('name="a"\nkind="sdist"', "version"), ('name="a"\nkind="git"\nversion="1"', "path"),
     ('name="a"\nkind="npm"\nversion="1"\ncolour="red"', "colour")],
)  # fmt: skip
def test_a_list_that_is_wrong_names_the_project_and_the_key(tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "list.toml").write_text(f"[[projects]]\n{row}\n")
    with pytest.raises(TaskError, match=said):
        read_projects(tmp_path / "list.toml")


def test_the_shipped_list_reads_and_names_real_projects_of_both_languages() -> None:
    found = read_projects(Path(__file__).parents[3] / "recipes/projects.toml")
    assert len(found) >= 24 and sum(one.language == "javascript" for one in found) >= 8


def test_an_environment_is_judged_by_tests_that_ask_for_nothing_outside_and_all_are_run_later() -> None:
    files = {
        "tests/integration/test_api.py": "def test_api(): pass\n",
        "tests/test_e2e.py": "def test_e(): pass\n",
        "tests/test_integrations.py": "def test_i(): pass\n",
    }
    project = python(**files)
    suite = next(goal for goal in python_rules.goals(project) if goal.tests)
    assert "tests/test_x.py" in suite.command and "tests/test_integrations.py" in suite.command
    assert "tests/integration/" not in suite.command and "test_e2e" not in suite.command
    assert {*files, "tests/test_x.py"} == {*python_rules.plan(project).files}
    assert without_services(["tests/e2e/test_all.py"]) == ["tests/e2e/test_all.py"]
    package = {"name": "a", "scripts": {"test": "jest"}, "devDependencies": {"jest": "29"}}
    text = "test('x', () => { expect(1).toBe(1) })\n"
    watcher = javascript(package, **{"test/integration/watcher.test.ts": text, "test/unit/watcher.test.ts": text})
    suite = next(goal for goal in node_rules.goals(watcher) if goal.tests)
    assert "test/unit/watcher.test.ts" in suite.command and "integration" not in suite.command
    assert len(node_plan.plan(watcher).files) == 2
