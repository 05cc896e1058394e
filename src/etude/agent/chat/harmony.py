"""gpt-oss: the package's renderer over the checkpoint's own tokenizer.

The package encodes by a vocabulary that it fetches from elsewhere; a checkpoint's tokenizer.json is the same vocabulary and is
already here. Harmony writes every message as

    <|start|>ROLE[ to=RECIPIENT][<|channel|>CHANNEL]<|message|>BODY<|end|>      (<|call|> ends a call)
"""

from __future__ import annotations

import json
from typing import Any, Sequence

from openai_harmony import Conversation, DeveloperContent, Role, SystemContent
from openai_harmony import Message as HarmonyMessage
from renderers import RenderedTokens
from renderers.configs import GptOssRendererConfig
from renderers.gpt_oss import GptOssRenderer, _reasoning_effort

from etude.agent.chat.hub_tokenizer import HubTokenizer

# JSON-schema tools as the TypeScript that gpt-oss was trained on, as the harmony reference encoder writes it.
#
# Its quirks are part of what the model has seen and are kept: the closing brace of an inner object is indented as
# deep as its fields, an inner object's description is written twice, only strings have their `enum` shown, and
# `anyOf` is unknown to it.


_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def namespace(tools: Sequence[dict[str, Any]]) -> str:
    """The section `## functions` of a developer message. `tools` are {name, description, parameters or None}."""
    bodies = "".join(_function(tool) for tool in tools)
    return f"## functions\n\nnamespace functions {{\n\n{bodies}}} // namespace functions"


def _function(tool: dict[str, Any]) -> str:
    said = "".join(f"// {line}\n" for line in tool["description"].splitlines())
    given = "" if tool["parameters"] is None else f"_: {_type(tool['parameters'], '')}"
    return f"{said}type {tool['name']} = ({given}) => any;\n\n"


def _type(schema: dict[str, Any], indent: str) -> str:
    if "oneOf" in schema:
        return "".join(f"\n{indent} | {_variant(one, indent)}{_after(one)}" for one in schema["oneOf"])
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        return " | ".join("number" if one == "integer" else str(one) for one in kind)
    if kind == "object":
        return _object(schema, indent)
    if kind == "array":
        return f"{_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    words = [word for word in schema.get("enum") or () if isinstance(word, str)]
    if kind == "string" and words:
        return " | ".join(f'"{word}"' for word in words)
    return _PLAIN.get(str(kind), "any")


def _object(schema: dict[str, Any], indent: str) -> str:
    said = f"{indent}// {schema['description']}\n" if "description" in schema else ""
    required = schema.get("required", ())
    fields = "".join(
        _field(name, field, "" if name in required else "?", indent)
        for name, field in schema.get("properties", {}).items()
    )
    return f"{said}{{\n{fields}{indent}}}"


def _field(name: str, schema: dict[str, Any], mark: str, indent: str) -> str:
    notes = [schema["title"], ""] if "title" in schema else []
    variants = schema.get("oneOf")
    said = schema.get("description")
    if said is not None and not (variants and variants[0].get("description") == said):
        notes.append(said)
    if schema.get("examples"):
        notes += ["Examples:", *(f'- "{one}"' for one in schema["examples"] if isinstance(one, str))]
    if variants and "default" in schema:
        notes.append(_default(schema))
    above = "".join(f"{indent}// {note}\n" if note else f"{indent}//\n" for note in notes)
    if not variants:
        default = f" // {_default(schema)}" if "default" in schema else ""
        return f"{above}{indent}{name}{mark}: {_variant(schema, indent + ' ')},{default}\n"
    lines = "".join(
        f"{indent} | {_variant(one, indent)}{_after(one, without=said, first=not i)}\n"
        for i, one in enumerate(variants)
    )
    return f"{above}{indent}{name}{mark}:\n{lines}{indent},\n"


def _variant(schema: dict[str, Any], indent: str) -> str:
    written = _type(schema, indent + "   ")
    return f"{written} | null" if schema.get("nullable") and "null" not in written else written


def _after(schema: dict[str, Any], *, without: str | None = None, first: bool = False) -> str:
    """The comment behind a variant; `without` is the comment above all of them, which the first one does not add to."""
    said = schema.get("description")
    notes = [said] if said is not None and said != without and not (first and without is not None) else []
    notes += [_default(schema)] if "default" in schema else []
    return f" // {' '.join(notes)}" if notes else ""


def _default(schema: dict[str, Any]) -> str:
    value = schema["default"]
    if isinstance(value, str):
        return f"default: {value}" if schema.get("enum") else f'default: "{value}"'
    return f"default: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"


# The preamble names a date. A fixed one keeps the same messages the same ids on every day; it is that of the model's release.
START_DATE = "2025-08-05"


class HarmonyText:
    """Replaces the encoder that the package expects: the same words, encoded by the given tokenizer."""

    def __init__(self, tokenizer: HubTokenizer) -> None:
        self._tokenizer = tokenizer

    def render_conversation(self, conversation: Conversation) -> list[int]:
        """All messages; a system message says where calls go if a developer message declares tools."""
        declared = any(isinstance(part, DeveloperContent) and part.tools for m in conversation for part in m.content)
        return [token for message in conversation for token in self._message(message, declared)]

    def render(self, message: HarmonyMessage) -> list[int]:
        """One message."""
        return self._message(message, False)

    def _message(self, message: HarmonyMessage, declared: bool) -> list[int]:
        role = message.author.name if message.author.role == Role.TOOL else message.author.role.value
        to = f" to={message.recipient}" if message.recipient and message.recipient != "all" else ""
        channel = f"<|channel|>{message.channel}" if message.channel else ""
        body = "".join(_body(part, declared) for part in message.content)
        called = message.author.role == Role.ASSISTANT and bool(to)
        end = "<|call|>" if called else "<|end|>"
        return self._tokenizer.encode(f"<|start|>{role}{to}{channel}<|message|>{body}{end}")


def _body(part: Any, declared: bool) -> str:
    if isinstance(part, SystemContent):
        return _system(part, declared)
    if isinstance(part, DeveloperContent):
        return _developer(part)
    return part.text


def _system(part: SystemContent, declared: bool) -> str:
    paragraphs: list[str] = []
    head = [part.model_identity] if part.model_identity else []
    head += [f"Knowledge cutoff: {part.knowledge_cutoff}"] if part.knowledge_cutoff else []
    head += [f"Current date: {part.conversation_start_date}"] if part.conversation_start_date else []
    paragraphs.append("\n".join(head))
    if part.reasoning_effort:
        paragraphs.append(f"Reasoning: {part.reasoning_effort.value.lower()}")
    if part.channel_config:
        must = " Channel must be included for every message." if part.channel_config.channel_required else ""
        routed = "\nCalls to these tools must go to the commentary channel: 'functions'." if declared else ""
        paragraphs.append(f"# Valid channels: {', '.join(part.channel_config.valid_channels)}.{must}{routed}")
    return "\n\n".join(paragraphs)


def _developer(part: DeveloperContent) -> str:
    paragraphs = [f"# Instructions\n\n{part.instructions}"] if part.instructions else []
    if part.tools:
        tools = [tool.model_dump() for tool in part.tools["functions"].tools]
        paragraphs.append(f"# Tools\n\n{namespace(tools)}")
    return "\n\n".join(paragraphs)


class Harmony(GptOssRenderer):
    """The package's renderer with the encoder above. Its own constructor would fetch a vocabulary, so it is not called."""

    def __init__(self, tokenizer: HubTokenizer, config: GptOssRendererConfig) -> None:
        self._tokenizer = tokenizer
        self.config = config
        self.effective_thinking_retention = config.thinking_retention or "tool_cycle"
        self._enc = HarmonyText(tokenizer)  # pyright: ignore[reportAttributeAccessIssue]
        self._reasoning_effort_enum = _reasoning_effort(config.reasoning_effort)
        self._conversation_start_date_resolved = config.conversation_start_date or START_DATE
        for name in ("start", "end", "return", "call", "channel", "message", "constrain"):
            setattr(self, f"_{name}", self._token_id(f"<|{name}|>"))

    def render(self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = False) -> RenderedTokens:
        rendered = super().render(messages, tools=tools)
        if add_generation_prompt:
            prompt = self._prompt()
            rendered.token_ids += prompt
            rendered.message_indices += [-1] * len(prompt)
            rendered.sampled_mask += [False] * len(prompt)
        return rendered

    def bridge_to_next_turn(
        self, previous_prompt_ids: Any, previous_completion_ids: Any, new_messages: Any, *, tools: Any = None
    ) -> RenderedTokens | None:
        bridged = super().bridge_to_next_turn(previous_prompt_ids, previous_completion_ids, new_messages, tools=tools)
        if bridged is not None:  # the package opens the thinking; the model chooses the channel
            opened = 2 + len(self._encode("analysis"))
            del bridged.token_ids[-opened:], bridged.message_indices[-opened:]
        return bridged

    def _prompt(self) -> list[int]:
        """The generation prompt of the published template. The model goes on with a channel or a recipient."""
        return [self._start, *self._encode("assistant")]

    def _response_prefix(self, token_ids: list[int], prompt_ids: list[int] | None) -> list[int]:
        return [] if token_ids and token_ids[0] == self._start else self._prompt()

    def spoken(self, row: dict[str, Any], before: Sequence[dict[str, Any]]) -> list[int]:
        """A turn as sampled after the generation prompt: thinking if there is any, then text and calls."""
        start = len(self.render_ids([*before]))  # pyright: ignore[reportArgumentType]
        silent = {**row, "reasoning_content": ""}
        said = self.render_ids([*before, silent])[start:]  # pyright: ignore[reportArgumentType]
        if row["reasoning_content"]:
            header = [*self._prompt(), self._channel, *self._encode("analysis"), self._message]
            said = [*header, *self._encode(row["reasoning_content"]), self._end, *said]
        return said[len(self._prompt()) :]
