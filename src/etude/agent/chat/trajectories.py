"""Mock conversations that hold what breaks chat formats: parallel calls, no arguments, nested JSON, text of other alphabets,
indentation, markers spelt in content, thinking. `model check` proves a directory on them; tests prove every family."""

from __future__ import annotations

from typing import Any, Sequence

from etude.agent.chat.special import TOOL_PARAMETERS
from etude.core.trace.message import Message, ToolCall

CODE = "def f(x):\n\tif x  ==  1:\n        return 'é→😀'\n"


def _tool(name: str, properties: dict[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return {"type": "function", "function": {"name": name, "description": f"Mock {name}.", "parameters": parameters}}


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("read_file", {"path": {"type": "string", "description": "Where."}, "limit": {"type": "integer"}}, ["path"]),
    _tool(
        "edit_file",
        {
            "path": {"type": "string"},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                    "required": ["old", "new"],
                },
            },
            "all": {"type": "boolean"},
        },
        ["path", "edits"],
    ),
    _tool("write_file", {"path": {"type": "string"}, "text": {"type": "string"}}, ["path", "text"]),
    _tool("list_todos", {}),
)
# The laptop model's own tools, as the nano preset declares them.
NANO_TOOLS = tuple(_tool(name, {key: {"type": "string"} for key in keys}) for name, keys in TOOL_PARAMETERS.items())


def spellings(markers: Sequence[str]) -> str:
    """Text that spells markers: what an agent reads when it works on a chat template."""
    return "a " + " b".join(markers) + "\n" + "".join(markers[:3]) + " c"


def turns(*, thinks: bool, markers: Sequence[str]) -> list[Message]:
    """Assistant turns, each one to be rendered and read back as it was."""
    thinking = "Let me look.\n\nTwo files." if thinks else ""
    edits = [{"old": "    a = 1", "new": "    a = 2\n"}, {"old": "\tb", "new": ""}]
    nested = {"path": "größe.py", "edits": edits, "all": True}
    return [
        Message("assistant", "Done: naïve → 完成 😀"),
        Message("assistant", "First.", thinking),
        _calls(("read_file", {"path": "src/a b.py", "limit": 20})),
        _calls(("list_todos", {}), thinking=thinking),
        _calls(("edit_file", nested), text="I edit.", thinking=thinking),
        _calls(("read_file", {"path": "a.py"}), ("read_file", {"path": "b.py"}), ("list_todos", {}), thinking=thinking),
        _calls(("write_file", {"path": "x", "text": "        " + CODE + "\n"})),
        _calls(("write_file", {"path": "x", "text": ""})),
        _calls(("write_file", {"path": "x", "text": "true"})),
        _calls(("write_file", {"path": "t.jinja", "text": spellings(markers)}), text="It spells markers."),
    ]


def nano_turns(markers: Sequence[str]) -> list[Message]:
    """The same for the laptop format: text only, no thinking, six tools."""
    return [
        Message("assistant", "naïve → 完成 😀"),
        _calls(("grep", {"pattern": "def  f\t"}), ("test", {}), text="look"),
        _calls(("edit", {"path": "a.py", "old": CODE, "new": spellings(markers)})),
        _calls(("done", {"message": ""})),
    ]


def trajectory(answers: Sequence[Message], markers: Sequence[str]) -> list[list[Message]]:
    """A session as the harness sees it: what the first turn answers, then each turn's results, in the order of the turns."""
    steps = [[Message("system", "You are careful.\n"), Message("user", "Fix f.\n" + CODE)]]
    for number, answer in enumerate(answers):
        results = [Message("tool", f"{i}: {CODE}", call_id=call.id) for i, call in enumerate(answer.calls)]
        if number == 1 and results:
            results[0] = Message("tool", spellings(markers), call_id=answer.calls[0].id)
        steps.append(results)
    return steps


def _calls(*calls: tuple[str, dict[str, Any]], text: str = "", thinking: str = "") -> Message:
    made = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return Message("assistant", text, thinking, made)
