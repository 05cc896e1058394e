"""Run by a Python that has the official `openai` and `anthropic` packages: drives an endpoint with both, as an agent would.

python sdk_driver.py MAKER ADDRESS KEY whole|stream|slow       prints one JSON object
"""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
# Of the slow try: shorter than the policy takes, so that the first tries time out and are sent again.
SHORT_S = 0.5


def anthropic(address: str, key: str, how: str) -> dict[str, Any]:
    from anthropic import Anthropic, __version__

    client: Any = Anthropic(base_url=address, api_key=key)
    tools = [{"name": "bash", "description": "Run a command", "input_schema": SCHEMA}]
    talk: list[Any] = [{"role": "user", "content": "Fix a.py"}]
    common: dict[str, Any] = {"model": "any", "system": "You fix.", "tools": tools}
    if how == "slow":
        slow = client.with_options(timeout=SHORT_S, max_retries=5)
        said = slow.messages.create(max_tokens=99, messages=talk, **common)
        return {"version": __version__, "answers": [_blocks(said)]}
    answers = []
    for _ in range(2):
        said, pieces = _anthropic_turn(client, how, max_tokens=99, messages=talk, **common)
        answers.append({"content": _blocks(said), "stop": said.stop_reason, "pieces": pieces})
        talk.append({"role": "assistant", "content": [block.model_dump() for block in said.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "a.py"}
            for block in said.content
            if block.type == "tool_use"
        ]
        talk.append({"role": "user", "content": results or "Thanks"})
    return {
        "version": __version__,
        "answers": answers,
        "usage": said.usage.input_tokens > 0 and said.usage.output_tokens > 0,
        "counted": client.messages.count_tokens(messages=talk[:1], **common).input_tokens,
        "beta_counted": client.beta.messages.count_tokens(messages=talk[:1], **common).input_tokens,
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve("any").display_name,
    }


def _anthropic_turn(client: Any, how: str, **asked: Any) -> tuple[Any, int]:
    if how == "whole":
        return client.messages.create(**asked), 0
    with client.messages.stream(**asked) as stream:
        pieces = sum(event.type in ("text", "thinking", "input_json") for event in stream)
        return stream.get_final_message(), pieces


def _blocks(said: Any) -> list[Any]:
    fields = ("type", "text", "thinking", "name", "input")
    return [{key: getattr(block, key) for key in fields if hasattr(block, key)} for block in said.content]


def openai(address: str, key: str, how: str) -> dict[str, Any]:
    from openai import OpenAI, __version__

    client: Any = OpenAI(base_url=f"{address}/v1", api_key=key)
    tools = [{"type": "function", "name": "bash", "description": "Run", "parameters": SCHEMA, "strict": False}]
    given: list[Any] = [{"role": "user", "content": "Fix a.py"}]
    common: dict[str, Any] = {"model": "any", "instructions": "You fix.", "tools": tools}
    if how == "slow":
        said = client.with_options(timeout=SHORT_S, max_retries=5).responses.create(input=given, **common)
        return {"version": __version__, "answers": [[item.type for item in said.output]]}
    answers = []
    for _ in range(2):
        said, pieces = _openai_turn(client, how, input=given, **common)
        answers.append({"items": [item.type for item in said.output], "text": said.output_text, "pieces": pieces})
        given += [item.model_dump(exclude_none=True) for item in said.output]
        given += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "a.py"}
            for item in said.output
            if item.type == "function_call"
        ]
        given += [{"role": "user", "content": "Thanks"}] if said.output_text else []
    return {
        "version": __version__,
        "answers": answers,
        "usage": said.usage.input_tokens > 0 and said.usage.output_tokens > 0,
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve("any").id,
    }


def _openai_turn(client: Any, how: str, **asked: Any) -> tuple[Any, int]:
    if how == "whole":
        return client.responses.create(**asked), 0
    with client.responses.stream(**asked) as stream:
        pieces = sum(event.type.endswith(".delta") for event in stream)
        return stream.get_final_response(), pieces


if __name__ == "__main__":
    maker, address, key, how = sys.argv[1:]
    print(json.dumps({"openai": openai, "anthropic": anthropic}[maker](address, key, how)))
