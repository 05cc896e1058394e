"""Prompts of a policy pass the same checks as the rules', or the rules' are used, which is reported."""

from __future__ import annotations

import json

from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message
from etude.tasks.generate.prompts.checks import objections
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.prompts.writer import write_prompts
from etude.tasks.task import Task

FACTS = Facts("`total` forgets the last value", expected="6", actual="3")
BEFORE = "def total(values):\n    return sum(values[:-1])\n"
TASK = Task(
    "t", "debugging", "x", "", {"s.py": BEFORE}, (), "commands", solution={"s.py": BEFORE.replace("[:-1]", "[0:None]")}
)
GOOD = {
    "terse": "total misses one, fix",
    "ambiguous": "totl forgts the last one",
    "full": "`total` forgets the last value.",
}


def saying(*texts: str) -> ScriptedPolicy:
    return ScriptedPolicy([Message("assistant", text) for text in texts], name="writer")


async def test_what_a_policy_writes_is_taken_when_it_passes() -> None:
    found = await write_prompts(TASK, FACTS, saying(f"Here:\n```json\n{json.dumps(GOOD)}\n```"))
    assert found.prompts == GOOD and set(found.by.values()) == {"writer"} and len(found.usages) == 1


async def test_what_gives_the_reference_away_is_asked_for_again() -> None:
    bad = {**GOOD, "terse": "write return sum(values[0:None]) please"}
    found = await write_prompts(TASK, FACTS, saying(json.dumps(bad), json.dumps(GOOD)))
    assert found.prompts == GOOD and found.by["terse"] == "writer" and len(found.usages) == 2


async def test_an_ambiguous_prompt_without_content_is_asked_for_again() -> None:
    bad = {**GOOD, "ambiguous": "that thing forgts one of it, can u fix that"}
    found = await write_prompts(TASK, FACTS, saying(json.dumps(bad), json.dumps(GOOD)))
    assert found.prompts == GOOD and len(found.usages) == 2


async def test_where_the_policy_never_gets_it_right_the_rules_stand_and_it_is_reported() -> None:
    bad = {**GOOD, "full": "see /home/me/project/s.py"}
    found = await write_prompts(TASK, FACTS, saying(json.dumps(bad), "no idea"))
    assert "/home/me" not in found.prompts["full"] and found.prompts["terse"] == GOOD["terse"]
    assert found.by["full"].startswith("rules (it is missing")
    assert not objections(TASK, found.prompts)
