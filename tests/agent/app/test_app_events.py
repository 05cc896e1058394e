"""Events of a session: each item is one call's, whatever ids an endpoint gives its calls, and ends with its own result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest
from app_lab import serving, turns

Etude = Callable[..., Any]
WAYS = {
    "one id for both": lambda turn, place: "call_0",
    "empty ids": lambda turn, place: "",
    "ids of each turn from the start": lambda turn, place: f"call_{place}",
    "a form that one provider demands": lambda turn, place: "abcdEF123",
}


@pytest.mark.parametrize("name", WAYS)
def test_items_never_mix_whatever_ids_an_endpoint_gives(
    name: str, shop: Path, etude: Etude, monkeypatch: pytest.MonkeyPatch
) -> None:
    import app_lab

    def calls(turn: dict[str, Any], number: int) -> list[dict[str, Any]]:
        return [
            {
                "id": WAYS[name](number, i),
                "type": "function",
                "function": {"name": tool, "arguments": json.dumps(given)},
            }
            for i, (tool, given) in enumerate(turn.get("calls", []))
        ]

    def player(messages: list[dict[str, Any]]) -> dict[str, Any]:
        number = turns(messages)
        shell = [("run_terminal_cmd", {"command": f"echo {number}-{word}"}) for word in ("first", "second")]
        return {"calls": shell} if number < 2 else {"text": "done"}

    monkeypatch.setattr(app_lab, "_calls", calls)
    with serving(player) as lab:
        flags = ("--json", "--sandbox", "none", "--approval", "never", "--no-index")
        done = etude("agent", "-p", "go", "-m", lab.url, *flags, folder=shop)
    assert done.code == 0
    items = done.items("command_execution")
    assert [item["output"].strip() for item in items] == [item["command"].removeprefix("echo ") for item in items]
    assert len({item["id"] for item in items}) == len(items) == 4
    started = [e["item"]["id"] for e in done.events if e["type"] == "item.started"]
    completed = [e["item"]["id"] for e in done.events if e["type"] == "item.completed"]
    assert sorted(set(started)) == sorted(started) and set(started) <= set(completed)
    for body in lab.asked:
        ids = [call["id"] for row in body["messages"] for call in row.get("tool_calls", ())]
        answered = [row["tool_call_id"] for row in body["messages"] if row["role"] == "tool"]
        assert ids == answered and len(set(ids)) == len(ids) and all(ids)
