"""Models that set goals, build and judge, over real sandboxes: scripted policies that answer as a model would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder
from etude.core.trace.writer import SessionWriter
from etude.sandbox.errors import InfraError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.environment.environment import DEPS
from etude.tasks.generate.install.account import account, describe_account
from etude.tasks.generate.install.agents.builder import ModelBuilder
from etude.tasks.generate.install.agents.interview import Model
from etude.tasks.generate.install.agents.judge import ModelJudge
from etude.tasks.generate.install.agents.recorded import RecordedPolicy
from etude.tasks.generate.install.agents.setter import ModelSetter
from etude.tasks.generate.install.agents.spending import Bill, SessionLimits, Spent
from etude.tasks.generate.install.building import build
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.install.pair import RecipeTrial
from etude.tasks.generate.install.recipe import InstallRecipe
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject

FILES = {
    "thing.py": b"from helper import one\n",
    "tests/test_thing.py": b"from thing import one\n\n\ndef test_one():\n    assert one() == 1\n",
}
PROJECT = Fetched(CatalogueProject("thing", "folder", "1.0", path="/nowhere"), FILES, "folder thing")
SUITE = "python3 -m pytest -q tests"
GOALS = {
    "goals": [
        {"command": SUITE, "description": "all tests pass", "pattern": r"\d+ passed", "tests": True},
        *(
            {"command": f"cat {DEPS}/helper.py; echo {n}", "description": "the helper is shown", "pattern": "return"}
            for n in range(9)
        ),
    ]
}
HELPER = f"mkdir -p {DEPS} && printf 'def one():\\n    return 1\\n' > {DEPS}/helper.py"
RECIPE: dict[str, Any] = {
    "steps": [HELPER],
    "env": {"PYTHONPATH": f".:{DEPS}"},
    "tests": {"runner": "pytest", "files": ["tests/test_*.py"]},
}
USAGE = Usage(input_tokens=100, output_tokens=10)


def call(name: str, **arguments: Any) -> Message:
    return Message("assistant", "", calls=(ToolCall("c", name, arguments),))


def says(row: object) -> Message:
    return Message("assistant", f"Here it is.\n```json\n{json.dumps(row)}\n```")


def playing(*script: Message, heard: list[Request] | None = None) -> Policy:
    """Each session goes through the script from its start."""
    turns: dict[str, int] = {}

    def answer(request: Request) -> Completion:
        if heard is not None:
            heard.append(request)
        turn = turns[request.session_id] = turns.get(request.session_id, -1) + 1
        return Completion(message=script[turn], usage=USAGE)

    return ScriptedPolicy(answer, name="scripted-model")


def model(policy: Policy, **changes: Any) -> Model:
    settings = HarnessSettings.full(preset="search_replace", lint_delta_s=0.0)
    return Model(policy, settings, dollars=lambda usage: 0.001 * usage.output_tokens, **changes)


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


def last(request: Request) -> str:
    return request.messages[-1].text


async def test_a_setter_is_offered_no_tool_that_acts_and_hears_why_its_answer_is_none(pool: SandboxPool) -> None:
    heard: list[Request] = []
    script = (
        call("read_file", target_file="thing.py"),
        call("run_terminal_cmd", command="touch made"),
        says({"goals": []}),
        says(GOALS),
    )
    setter = ModelSetter(model(playing(*script, heard=heard)), pool)
    found = await setter.goals(PROJECT)
    offered = {tool["function"]["name"] for tool in heard[0].tools}
    assert len(found) == 10 and found[0].tests
    assert "read_file" in offered and not offered & {"run_terminal_cmd", "write", "search_replace", "delete_file"}
    assert "from helper import one" in last(heard[1]) and "no tool run_terminal_cmd" in last(heard[2])
    assert "must be a list of 10 objects, there is 0" in last(heard[3])
    assert await setter.goals(PROJECT) == found and len(heard) == 4  # asked once for a tree


async def test_a_setter_of_a_preset_that_can_t_leave_out_its_shell_is_refused_to_act(pool: SandboxPool) -> None:
    heard: list[Request] = []
    policy = playing(call("shell", command="echo ran"), call("done", message=json.dumps(GOALS)), heard=heard)
    setter = ModelSetter(Model(policy, HarnessSettings.full()), pool)
    assert len(await setter.goals(PROJECT)) == 10 and "not allowed" in last(heard[1])


@pytest.mark.nightly
async def test_two_models_install_a_project_and_what_they_cost_is_reported(pool: SandboxPool, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path, data in FILES.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    wanted, bill = CatalogueProject("thing", "folder", "1.0", path=str(tree)), Bill()
    sessions = tmp_path / "sessions"
    sessions.mkdir()

    def record(header: Any) -> Recorder:
        return SessionWriter(sessions / f"{header.session_id}.jsonl", header)

    sets = model(playing(says(GOALS)), bill=bill, record=record)
    builds = model(playing(call("run_terminal_cmd", command=HELPER), says(RECIPE)), bill=bill, record=record)
    installer = Installer(pool, tmp_path, ModelSetter(sets, pool), ModelBuilder(builds, pool), bill=bill)
    built = await installer.install(wanted)
    assert built.installed.baseline.by_file == {"tests/test_thing.py": ("tests.test_thing::test_one",)}
    assert built.builder == "scripted-model" and built.installed.environment.env["PYTHONPATH"] == f".:{DEPS}"
    spent = {"turns": 3, "input_tokens": 300, "output_tokens": 30, "dollars": 0.03, "tries": 1}
    assert dict(built.spent) == spent and (await installer.install(wanted)).spent == spent

    said = RecordedPolicy(sessions)  # the same run again, from what was recorded
    again = ModelBuilder(model(said), pool)
    recipe, tried = await build(PROJECT, pool, ModelSetter(model(said), pool), again)
    assert not tried and recipe.steps == (HELPER,)
    with pytest.raises(
        InfraError, match="has no session thing-1.0.build-2; there are: thing-1.0.build-1, thing-1.0.goals"
    ):
        await again.build(PROJECT, [], [RecipeTrial(recipe, "no")])


@pytest.mark.nightly
async def test_a_try_is_shown_what_the_one_before_did_and_starts_from_the_untouched_tree(pool: SandboxPool) -> None:
    heard: list[Request] = []
    steps = [["false"], [HELPER]]

    def answer(request: Request) -> Message:
        heard.append(request)
        if last(request).startswith("Install the project"):
            return call("run_terminal_cmd", command=f"ls {DEPS} 2>&1; mkdir -p {DEPS}; touch {DEPS}/mine")
        return says({**RECIPE, "steps": steps[request.session_id.endswith("-2")]})

    builder = ModelBuilder(model(ScriptedPolicy(answer)), pool)
    recipe, tried = await build(PROJECT, pool, ModelSetter(model(playing(says(GOALS))), pool), builder)
    assert [one.objection for one in tried] == ["step `false` ended with 1: "] and recipe.steps == (HELPER,)
    assert "Try 1 failed: step `false` ended with 1" in last(heard[2])
    assert all("No such file" in last(request) for request in heard if request.messages[-1].role == "tool")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (SessionLimits(turns=2), "its 2 turns are used up"),
        (SessionLimits(tokens=150), "its 150 tokens are used up"),
        (SessionLimits(dollars=0.01), r"its \$0.01 are spent"),
        (SessionLimits(seconds=0.0), "its 0 seconds are over"),
    ],
)
async def test_a_session_ends_at_its_limits_and_the_project_is_discarded_with_the_one(
    pool: SandboxPool, limits: SessionLimits, why: str
) -> None:
    looks = model(playing(*[call("list_dir", target_directory=".")] * 9), limits=limits)
    with pytest.raises(ProjectDiscarded, match=f"no goals: scripted-model gave none: {why}") as caught:
        await build(PROJECT, pool, ModelSetter(looks, pool))
    assert looks.bill.of("thing-1.0").turns <= 2 and caught.value.builder == "rules"


async def test_a_model_that_can_t_be_asked_is_no_verdict_on_the_project(pool: SandboxPool) -> None:
    def gone(request: Request) -> Message:
        raise PolicyError("connection refused")

    with pytest.raises(InfraError, match="can't be asked: connection refused"):
        await ModelSetter(model(ScriptedPolicy(gone)), pool).goals(PROJECT)


GOAL = Goal("make", "the build names three targets", "never looked for")


@pytest.mark.parametrize(
    ("script", "rc", "objection"),
    [
        ([{"matches": True, "why": "fine"}], 0, ""),
        ([{"matches": False, "why": "it names one"}], 0, "three targets): it names one"),
        ([{"matches": "yes"}, {"matches": True, "why": ""}], 0, ""),
        ([], 2, "ended with status 2, not 0"),
    ],
)
async def test_a_judge_goes_by_the_description_and_a_status_needs_none(
    script: list[object], rc: int, objection: str
) -> None:
    found = await ModelJudge(model(playing(*map(says, script)))).objection(GOAL, rc, "a b c", "thing-1.0")
    assert objection in found and bool(found) == bool(objection)


async def test_without_a_verdict_nothing_passes() -> None:
    with pytest.raises(InfraError, match="no verdict in 3 answers"):
        await ModelJudge(model(playing(*[Message("assistant", "fine!")] * 3))).objection(GOAL, 0, "", "thing-1.0")


async def test_what_a_start_script_starts_is_there_when_goals_are_judged(pool: SandboxPool) -> None:
    script = "mkdir -p /tmp/run && echo up > /tmp/run/mark"

    class Builds:
        name = "starts"

        async def build(self, project: Fetched, goals: object, tried: object) -> InstallRecipe:
            made = await ModelBuilder(model(playing(says({**RECIPE, "start_script": script}))), pool).build(
                project, [], []
            )
            return made

    class Sets:
        async def goals(self, project: Fetched) -> list[Goal]:
            return [Goal("cat /tmp/run/mark", "the mark of the service", "up")]

    recipe, _ = await build(PROJECT, pool, Sets(), Builds())
    assert recipe.environment.start_script == script


def row(builder: str, project: str, dollars: float | None, **changes: Any) -> dict[str, Any]:
    spent = Spent(2, 10, 5, dollars).to_record()
    found = {"project": project, "builder": builder, "language": "go", "installed": True, "tests": 3, "seconds": 1.5}
    return {**found, "spent": spent, **changes}


def test_yields_and_costs_of_builders_stand_side_by_side() -> None:
    rows = [row("rules", "a", 0.0, installed=False), row("m", "a", 0.5), row("m", "b", None)]
    found = account(rows, {"setter": {"turns": 0}, "judge": Spent(1, 2, 3, 0.25).to_record()})
    assert (found["installed"], found["of"], found["yield"]) == (2, 2, 1.0) and "setter" not in found
    rules, m = found["builders"]
    assert (rules["yield"], rules["dollars"], rules["dollars_per_install"]) == (0.0, 0.0, None)
    assert (m["installed"], m["turns"], m["dollars"], m["by_language"]) == (2, 4, None, {"go": [2, 2]})
    assert "m: 2 of 2 (100%), 4 turns, 20 + 10 tokens, price unknown" in describe_account(found)
    assert "judge: 1 turns, 2 + 3 tokens, $0.2500" in describe_account(found)
