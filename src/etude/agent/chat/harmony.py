"""gpt-oss: the package's renderer over the checkpoint's own tokenizer.

The package encodes by a vocabulary that it fetches from elsewhere; a checkpoint's tokenizer.json is the same vocabulary and is
already here. Harmony writes every message as

    <|start|>ROLE[ to=RECIPIENT][<|channel|>CHANNEL]<|message|>BODY<|end|>      (<|call|> ends a call)
"""

from __future__ import annotations

from typing import Any, Sequence

from openai_harmony import Conversation, DeveloperContent, Role, SystemContent
from openai_harmony import Message as HarmonyMessage
from renderers.configs import GptOssRendererConfig
from renderers.gpt_oss import GptOssRenderer, _reasoning_effort

from etude.agent.chat import typescript
from etude.agent.chat.hub_tokenizer import HubTokenizer

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
        paragraphs.append(f"# Tools\n\n{typescript.namespace(tools)}")
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

    def spoken(self, row: dict[str, Any], before: Sequence[dict[str, Any]]) -> list[int]:
        """A turn as sampled after the generation prompt, which opens its thinking."""
        start = len(self.render_ids([*before]))  # pyright: ignore[reportArgumentType]
        silent = {**row, "reasoning_content": ""}
        said = self.render_ids([*before, silent])[start:]  # pyright: ignore[reportArgumentType]
        return [*self._encode(row["reasoning_content"]), self._end, *said]
