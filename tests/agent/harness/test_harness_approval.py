"""The approval policy: what is asked for, what an answer for the session covers, and what it never covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.approval import Answer, ApprovalAnswer, ApprovalPolicy, Approver, Effect, rule_for
from etude.core.trace.message import ToolCall


def shell(command: str) -> ToolCall:
    return ToolCall("c0", "shell", {"command": command})


class Person:
    def __init__(self, answer: Answer, reason: str = "") -> None:
        self.heard: list[ToolCall] = []
        self._asked = ApprovalAnswer(answer, reason)

    async def __call__(self, call: ToolCall, effect: Effect) -> ApprovalAnswer:
        self.heard.append(call)
        return self._asked


@pytest.mark.parametrize(
    ("policy", "asked_for"),
    [
        ("never", set()),
        ("commands", {"execute", "network"}),
        ("writes", {"write", "execute", "network"}),
        ("all", {"read", "write", "execute", "network"}),
    ],
)
async def test_each_policy_asks_for_its_effects(policy: ApprovalPolicy, asked_for: set[Effect]) -> None:
    effects: tuple[Effect, ...] = ("read", "write", "execute", "network")
    for effect in effects:
        person = Person("once")
        ruling = await Approver(policy, person).rule(shell("ls"), effect)
        assert ruling.allowed
        assert ruling.asked == bool(person.heard) == (effect in asked_for)


async def test_a_refusal_carries_the_persons_words() -> None:
    ruling = await Approver("commands", Person("deny", "not on main")).rule(shell("git push"), "execute")
    assert (ruling.allowed, ruling.reason) == (False, "not on main")


async def test_without_a_person_what_would_be_asked_is_refused() -> None:
    ruling = await Approver("commands").rule(shell("ls"), "execute")
    assert not ruling.allowed and "no person can answer" in ruling.reason


async def test_an_answer_for_the_session_covers_the_same_program_and_verb_only() -> None:
    person = Person("session")
    approver = Approver("commands", person)
    for command in ("git status", "git status --short", "git push", "git push origin"):
        assert (await approver.rule(shell(command), "execute")).allowed
    assert [call.arguments["command"] for call in person.heard] == ["git status", "git push"]


@given(st.text(), st.sampled_from([";", "&&", "|", "`", "$(", ">", "<", "\n", "&"]), st.text())
def test_no_rule_reaches_a_compound_command(before: str, joint: str, after: str) -> None:
    assert rule_for(shell(f"git status {before}{joint}{after}"), "execute") is None
    assert rule_for(shell(before + joint + after), "execute") is None


def test_a_command_that_is_no_text_or_has_an_open_quote_makes_no_rule() -> None:
    assert rule_for(ToolCall("c0", "shell", {"command": 7}), "execute") is None
    assert rule_for(shell("echo 'open"), "execute") is None
