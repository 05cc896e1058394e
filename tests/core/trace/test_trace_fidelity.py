"""Fidelity: two sessions of one harness differ in nothing that a policy sees; what differs is named fact by fact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from etude.core.trace.entry import SessionHeader
from etude.core.trace.fidelity import fidelity, same_harness


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": {"type": "object"}},
    }


FACTS = {
    "harness": 3,
    "system": "Be brief.",
    "schemas": [tool("read"), tool("edit")],
    "settings": {"max_tool_lines": 24},
}
SETTINGS = {"max_tool_lines": 24, "temperature": 1.0}
ROLLOUT = SessionHeader(
    "r", harness="a" * 16, harness_facts=FACTS, settings=SETTINGS, policy="step-3", takes_tokens=True
)


def test_a_session_of_use_with_the_rollouts_harness_differs_in_nothing_that_is_seen() -> None:
    use = replace(
        ROLLOUT, session_id="u", policy="endpoint", settings={**SETTINGS, "temperature": 0.2}, created_unix_s=9.0
    )
    assert same_harness(ROLLOUT, use)
    assert [(row.fact, row.seen) for row in fidelity(ROLLOUT, use)] == [
        ("settings.temperature", False),
        ("policy", False),
    ]


def test_every_fact_that_differs_is_named_with_both_values() -> None:
    facts = {
        **FACTS,
        "system": "Be brief!",
        "schemas": [tool("edit", "now described"), tool("read"), tool("shell")],
        "settings": {"max_tool_lines": 40},
        "python": "3.13",
    }
    use = replace(
        ROLLOUT, harness="b" * 16, harness_facts=facts, settings={**SETTINGS, "max_tool_lines": 40}, effort="high"
    )
    found = {row.fact: row for row in fidelity(ROLLOUT, use)}
    assert set(found) == {
        "system",
        "schemas.edit.description",
        "schemas.shell",
        "settings.max_tool_lines",
        "python",
        "effort",
    }
    assert (found["system"].first, found["system"].second, found["system"].seen) == ("Be brief.", "Be brief!", True)
    assert found["schemas.shell"].only == "second" and found["python"].only == "second"
    assert (found["settings.max_tool_lines"].first, found["settings.max_tool_lines"].second) == (24, 40)
    assert not same_harness(ROLLOUT, use)


def test_sessions_without_a_hash_are_never_called_the_same() -> None:
    assert not same_harness(SessionHeader("a"), SessionHeader("b"))
