"""The plan and the ledger: a finished stage is never run twice, a stale one always again, wherever the run was killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.pipeline.run.graph import GRAPH, names
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.plan import PlanError, flat_settings, plan, select
from etude.pipeline.run.stage import Stage

CHAIN = tuple(
    Stage(name, after, (name,), "no:body", "")
    for name, after in (("a", ()), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c")))
)
ALL = ["a", "b", "c", "d"]


class World:
    """Folders and a ledger on disk; a kill may come before any of the small moves a run is made of."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.jsonl"
        self.values = dict.fromkeys(ALL, 0)
        self.output: dict[str, tuple[Any, ...]] = {}  # what each stage made: its value and what it was made from
        self.completions: list[str] = []
        self.budget = 10**9

    def move(self) -> None:
        self.budget -= 1
        if self.budget < 0:
            raise KeyboardInterrupt

    def steps(self, selected: list[str]) -> list[Any]:
        return plan(CHAIN, StageLedger(self.path), self.settings, selected, lambda name: name in self.output)

    def settings(self, stage: Stage) -> dict[str, Any]:
        return {f"{stage.name}.x": self.values[stage.name]}

    def run(self, selected: list[str], budget: int = 10**9) -> list[Any]:
        self.budget = budget
        steps = self.steps(selected)
        for step in steps:
            if step.action == "skip":
                continue
            stage = next(s for s in CHAIN if s.name == step.stage)
            ledger = StageLedger(self.path)
            if step.action == "run":
                self.move()
                self.output.pop(stage.name, None)
                self.move()
                upstream = {n: a.id for n in stage.after if (a := ledger.latest(n))}
                ledger.start(stage.name, self.settings(stage), upstream)
            self.move()
            self.output[stage.name] = (self.values[stage.name], tuple(self.output[n] for n in stage.after))
            self.move()
            ledger.finish(stage.name)
            self.completions.append(stage.name)
        return steps

    def wanted(self, name: str) -> tuple[Any, ...]:
        stage = next(s for s in CHAIN if s.name == name)
        return (self.values[name], tuple(self.wanted(n) for n in stage.after))


changes = st.tuples(st.sampled_from(ALL), st.integers(0, 2))
lives = st.lists(st.tuples(st.lists(changes, max_size=2), st.integers(0, 20)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(lives)
def test_whatever_was_killed_and_changed_the_last_run_makes_what_the_recipe_asks_for(
    tmp_path_factory: pytest.TempPathFactory, kills: list[tuple[list[tuple[str, int]], int]]
) -> None:
    world = World(tmp_path_factory.mktemp("run"))
    for changed, budget in kills:
        world.values.update(dict(changed))
        try:
            world.run(ALL, budget)
        except KeyboardInterrupt:
            pass
    world.run(ALL)
    assert {name: world.output[name] for name in ALL} == {name: world.wanted(name) for name in ALL}
    assert [s.action for s in world.steps(ALL)] == ["skip"] * 4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=10))
def test_without_changes_every_stage_completes_exactly_once_however_often_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, budgets: list[int]
) -> None:
    world = World(tmp_path_factory.mktemp("run"))
    for budget in budgets:
        try:
            world.run(ALL, budget)
        except KeyboardInterrupt:
            pass
    world.run(ALL)
    assert world.completions == ALL


@settings(max_examples=40, deadline=None)
@given(torn_at=st.integers(min_value=1))
def test_a_torn_ledger_line_counts_as_never_written(tmp_path_factory: pytest.TempPathFactory, torn_at: int) -> None:
    world = World(tmp_path_factory.mktemp("run"))
    world.run(["a"])
    whole = world.path.read_bytes()
    lines = whole.splitlines(keepends=True)
    world.path.write_bytes(b"".join(lines[:-1]) + lines[-1][: torn_at % (len(lines[-1]) - 1)])
    (step, *_) = world.steps(ALL)
    assert (step.stage, step.action) == ("a", "resume")
    world.run(ALL)
    assert [s.action for s in world.steps(ALL)] == ["skip"] * 4


def test_a_changed_setting_reruns_its_stage_and_those_downstream_saying_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(ALL)
    world.values["b"] = 7
    steps = world.steps(ALL)
    assert [s.action for s in steps] == ["skip", "run", "skip", "run"]
    assert steps[1].why == "b.x was 0, is 7" and steps[3].why == "b is made again"


def test_a_lost_folder_is_made_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(ALL)
    del world.output["c"]
    assert [(s.action, s.why) for s in world.steps(ALL)][2:] == [
        ("run", "its folder is gone"),
        ("run", "c is made again"),
    ]


def test_only_needs_what_comes_before_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(PlanError, match="b needs a, which is not ready here .not run yet."):
        world.steps(["b"])
    world.run(["a"])
    assert [s.stage for s in world.run(["b"])] == ["b"]
    world.values["a"] = 5
    with pytest.raises(PlanError, match="a.x was 0, is 5"):
        world.steps(["b"])
    with pytest.raises(PlanError, match="d needs b, which is not ready here .a is made again."):
        world.steps(["d"])


def test_a_stage_whose_input_a_setting_can_name_says_which(tmp_path: Path) -> None:
    graph = (CHAIN[0], replace(CHAIN[1], stand_ins={"a": "run.a_checkpoint"}))
    with pytest.raises(PlanError, match=r"--until b, .* or begin with .* .--set run.a_checkpoint=checkpoints/NAME."):
        plan(graph, StageLedger(tmp_path / "ledger.jsonl"), lambda stage: {}, ["b"], lambda name: False)


def test_a_stage_alone_does_not_disturb_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(ALL)
    world.values["d"] = 3
    assert [s.action for s in world.run(["d"])] == ["run"]
    assert world.completions == [*ALL, "d"]


def test_stages_are_chosen_by_name() -> None:
    assert select(CHAIN, None, None, None) == ALL
    assert select(CHAIN, "b", None, None) == ["b"]
    assert select(CHAIN, None, "b", "c") == ["b", "c"]
    for arguments in (("x", None, None), (None, "c", "b"), ("a", "b", None)):
        with pytest.raises(PlanError):
            select(CHAIN, *arguments)


def test_the_real_graph_is_in_an_order_that_respects_its_edges() -> None:
    order = names(GRAPH)
    for stage in GRAPH:
        assert all(order.index(before) < order.index(stage.name) for before in stage.after)


def test_every_section_of_the_recipe_decides_some_stage() -> None:
    """A section that no stage reads could be changed without any stage being run again. `cluster` says where alone, and may be."""
    from etude.pipeline.recipe.recipe import Recipe

    read = {path.split(".")[0] for stage in GRAPH for path in stage.reads}
    assert set(Recipe.model_fields) - {"cluster"} <= read
    assert flat_settings(Recipe().model_dump(mode="json"), ("rl.steps",)) == {"rl.steps": Recipe().rl.steps}


def test_a_stage_does_without_what_it_also_reads_and_runs_again_once_that_is_there(tmp_path: Path) -> None:
    graph = (Stage("a", (), (), "no:body", ""), Stage("late", ("a",), (), "no:body", ""))
    graph += (Stage("judge", ("a",), (), "no:body", "", also=("late",)),)
    ledger = StageLedger(tmp_path / "ledger.jsonl")

    def decide(*selected: str) -> dict[str, str]:
        return {s.stage: s.action for s in plan(graph, ledger, lambda s: {}, selected, lambda name: True)}

    def complete(name: str) -> None:
        stage = next(s for s in graph if s.name == name)
        known = {n: found for n in (*stage.after, *stage.also) if (found := ledger.finished_attempt(n))}
        ledger.start(name, {}, known)
        ledger.finish(name)

    complete("a")
    assert decide("judge") == {"judge": "run"}
    complete("judge")
    assert decide("judge") == {"judge": "skip"}
    assert decide("late", "judge") == {"late": "run", "judge": "run"}
    complete("late")
    assert decide("judge") == {"judge": "run"}
    complete("judge")
    assert decide("late", "judge") == {"late": "skip", "judge": "skip"}


def test_a_recorded_setting_that_was_removed_without_effect_makes_no_stage_stale(tmp_path: Path) -> None:
    ledger = StageLedger(tmp_path / "ledger.jsonl")
    ledger.start("a", {"a.x": 0, "sandbox.firecracker.program": "firecracker"}, {})
    ledger.finish("a")
    (step,) = plan(CHAIN[:1], ledger, lambda stage: {"a.x": 0}, ["a"], lambda name: True)
    assert step.action == "skip"
    ledger.start("a", {"a.x": 0, "sandbox.other": 1}, {})
    ledger.finish("a")
    (step,) = plan(CHAIN[:1], ledger, lambda stage: {"a.x": 0}, ["a"], lambda name: True)
    assert (step.action, step.why) == ("run", "sandbox.other was 1, is absent")


@pytest.mark.parametrize("recorded", [{}, {"sft.loop.parallel.shard": 1}, {"sft.loop.parallel.shard": 4}])
def test_a_stage_goes_on_over_other_ranks_and_is_not_made_again_for_them(
    recorded: dict[str, int], tmp_path: Path
) -> None:
    ledger = StageLedger(tmp_path / "ledger.jsonl")
    now = {"sft.seed": 0, "sft.loop.parallel.shard": 2}
    ledger.start("a", {"sft.seed": 0} | recorded, {})
    (step,) = plan(CHAIN[:1], ledger, lambda stage: now, ["a"], lambda name: True)
    assert step.action == "resume"
    ledger.finish("a")
    (step,) = plan(CHAIN[:1], ledger, lambda stage: now, ["a"], lambda name: True)
    assert step.action == "skip"
