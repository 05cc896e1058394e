"""Encodes a conversation with mistral-common's tokenizer of version 13. Run by a Python that has the package: a JSON object on stdin with
`folder`, `messages` and `tools`; the ids as JSON on stdout. Writes tekken.json of version 13 into the folder first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mistral_common
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.normalize import InstructRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.base import SpecialTokens
from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV13
from mistral_common.tokens.tokenizers.tekken import Tekkenizer


def write_tekken(folder: Path) -> Path:
    """The published ranks with the special tokens of version 13: the package holds files of earlier versions only."""
    rows = json.loads((Path(mistral_common.__file__).parent / "data" / "tekken_240911.json").read_text())
    rows["config"]["version"] = "v13"
    rows.pop("image", None)
    words = [token.value for token in SpecialTokens]
    rows["special_tokens"] = [{"rank": i, "token_str": word, "is_control": True} for i, word in enumerate(words)]
    file = folder / "tekken.json"
    file.write_text(json.dumps(rows))
    return file


def message_of(row: dict[str, Any]) -> Any:
    """A message as the package has it."""
    if row["role"] == "system":
        return SystemMessage(content=row["text"])
    if row["role"] == "user":
        return UserMessage(content=row["text"])
    if row["role"] == "tool":
        return ToolMessage(content=row["text"], tool_call_id=row["call_id"], name="tool")
    calls = [
        ToolCall(id=call["id"], function=FunctionCall(name=call["name"], arguments=json.dumps(call["arguments"])))
        for call in row["calls"]
    ]
    return AssistantMessage(content=row["text"] or None, tool_calls=calls or None)


def main() -> None:
    asked = json.load(sys.stdin)
    tokenizer = InstructTokenizerV13(Tekkenizer.from_file(write_tekken(Path(asked["folder"]))))
    tools = [Tool(function=Function(**tool["function"])) for tool in asked["tools"]]
    request = InstructRequest(messages=[message_of(row) for row in asked["messages"]], available_tools=tools or None)
    print(json.dumps(tokenizer.encode_instruct(request).tokens))


if __name__ == "__main__":
    main()
