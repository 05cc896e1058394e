"""A preset and a tool in a person's own package: an agent works with them, and their source is part of the harness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from etude.agent.harness.presets.preset import harness_facts, harness_hash, preset
from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.cli.main import app
from etude.cli.prepare import require_plugins
from etude.core.plugins import PluginError, source_digest
from etude.core.trace.message import Message, ToolCall
from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.suites.manifest import check
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.execute import Run
from etude.pipeline.run.plugins import plugin_sources
from etude.rollout.attempt import AttemptSetup, attempt
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.registry import GRADERS

PATH = "my_preset:preset"


@pytest.fixture
def module(template: Callable[[str], Path]) -> Iterator[Path]:
    preset.cache_clear()
    yield template("presets") / "my_preset.py"
    preset.cache_clear()


def call(number: int, name: str, **arguments: object) -> Message:
    return Message("assistant", calls=(ToolCall(f"c{number}", name, dict(arguments)),))


async def test_an_agent_works_with_the_tools_of_the_template_and_replays(module: Path) -> None:
    task = ExerciseSource(ExerciseSettings()).task("one-bug/train/000003")
    ((path, solved),) = task.solution.items()
    lines = len(task.files[path].splitlines())
    script = [
        call(0, "open_file", file=path),
        call(1, "count", path=path, blank=True),
        call(2, "count", path="absent.py"),
        call(3, "count", file=path),
        call(4, "replace", path=path, old=task.files[path], new=solved),
        Message("assistant", "fixed"),
    ]
    settings = HarnessSettings.full(preset=PATH)
    pool = await open_pool(SandboxSettings())
    try:
        found = await attempt(task, AttemptSetup(ScriptedPolicy(script), pool, GRADERS, settings))
        session = found.outcome.session
        assert found.verdict.score == 1.0
        results = [entry.data for entry in session.of("tool_result")]
        assert [row["failed"] for row in results] == [False, False, True, True, False]
        assert results[1]["text"] == f"{lines} lines" and "absent.py" in results[2]["text"]
        assert session.header.harness_facts["plugins"] == {"my_preset": source_digest(PATH)}
        with pytest.raises(PluginError, match=f"replay with --plugin {PATH}"):
            await replay(session, SimpleNamespace())  # type: ignore[arg-type]
        sandbox = await open_workspace(task, pool, SandboxSpec())
        assert await replay(session, sandbox, plugins=[PATH]) is None
        await sandbox.kill()
    finally:
        await pool.close()


def test_the_hash_covers_the_source_and_no_built_in_preset_names_one(module: Path) -> None:
    settings = HarnessSettings(preset=PATH)
    before = harness_hash(settings, "")
    assert preset(PATH).quiet("count") and not preset(PATH).quiet("replace") and preset(PATH).skinned
    assert [row["function"]["name"] for row in preset(PATH).schemas] == ["open_file", "replace", "bash", "count"]
    module.write_text(module.read_text() + "# changed\n")
    assert harness_hash(settings, "") == before  # this process goes on with what it has imported
    preset.cache_clear()
    assert harness_hash(settings, "") != before
    assert all("plugins" not in harness_facts(HarnessSettings(preset=name), "") for name in ("nano", "patch"))
    assert "count" not in preset(PATH, frozenset({"count"})).tools


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("preset = 1", "my_preset:preset is int; a preset is a PresetDefinition"),
        ("CountLines.name = 'read'", "it needs one that no built-in tool has"),
        ("CountLines.parameters = ['path']", "give a tuple of Parameter"),
        ("CountLines.run = lambda self, arguments, context: None", "no method `async def run"),
        ("preset = replace(preset, tools=(OfferedTool(CountLines(), 'x'),))", "has no description"),
        ("preset = replace(preset, tools=(OfferedTool('reed', 'x'),))", "x is the tool 'reed'; there are read, "),
        ("preset = replace(preset, tools=(OfferedTool('read', 'x', {'file': 'y'}),))", "read has no parameter file"),
        ("preset = replace(preset, tools=preset.tools * 2)", "two of its tools have the name 'open_file'"),
        ("preset = replace(preset, tools=())", "a preset has at least one OfferedTool"),
        ("import no_such_module", "the module my_preset can't be imported: No module named 'no_such_module'"),
    ],
)
def test_what_is_no_preset_is_refused_before_a_stage(changed: str, message: str, module: Path, tmp_path: Path) -> None:
    module.write_text(f"from dataclasses import replace\n{module.read_text()}\n{changed}\n")
    run = Run(read_recipe([], [f'harness.preset="{PATH}"']), tmp_path / "run")
    with pytest.raises(RecipeError, match=re.escape(message)) as refused:
        require_plugins(run, ["rl"])
    assert str(refused.value).startswith("harness.preset: ") and "\n" not in str(refused.value)


def test_a_run_is_bound_to_the_source_of_its_preset(module: Path) -> None:
    recipe = read_recipe([], [f'harness.preset="{PATH}"'])
    assert plugin_sources(recipe, ["harness"]) == {PATH: source_digest(PATH)}
    assert plugin_sources(recipe, ["pretrain"]) == {}


def test_a_suite_may_pin_no_preset_by_import_path() -> None:
    row = {"name": "s", "version": "1", "released": "2026-11-28", "harness": {"preset": PATH}}
    with pytest.raises(SuiteError, match="a suite may not name code"):
        check(row, "suite.toml")


def test_a_misspelt_preset_is_refused_everywhere() -> None:
    with pytest.raises(ValidationError, match="'nanoo' is none of nano, full"):
        HarnessSettings(preset="nanoo")
    for verb in (["agent"], ["bench", "run", "exercises"]):
        found = CliRunner().invoke(app, [*verb, "--preset", "nanoo"], env={"COLUMNS": "300"})
        assert found.exit_code == 2 and "none of nano, full" in found.output, found.output
