"""The special tokens of the laptop model, in the order of their ids. The tokenizer's trainer puts them first.

One token per role and per tool; `<|arg|>` separates a call's arguments, which are positional in the order given here. Those of
fill-in-the-middle belong to the corpus; they have the names that Qwen's and other open code models give them.
"""

from __future__ import annotations

PAD = "<|pad|>"
BOS = "<|bos|>"
END = "<|end|>"
SYSTEM = "<|system|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
TOOL = "<|tool|>"
ARG = "<|arg|>"
SUMMARY = "<|summary|>"

# Tool name -> its parameters in the order a call writes them. The harness' nano preset declares the same.
TOOL_PARAMETERS: dict[str, tuple[str, ...]] = {
    "grep": ("pattern",),
    "view": ("path",),
    "edit": ("path", "old", "new"),
    "test": (),
    "todo": ("text",),
    "done": ("message",),
}

FIM_PREFIX = "<|fim_prefix|>"
FIM_SUFFIX = "<|fim_suffix|>"
FIM_MIDDLE = "<|fim_middle|>"


def tool_token(name: str) -> str:
    """The special token of a tool."""
    return f"<|{name}|>"


# What the chat format can't do without.
CHAT_TOKENS: tuple[str, ...] = (
    *(PAD, BOS, END, SYSTEM, USER, ASSISTANT, TOOL, ARG, SUMMARY),
    *(tool_token(name) for name in TOOL_PARAMETERS),
)
_TAKEN = (*CHAT_TOKENS, FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE)
# Filled up to 32, so that a later tool or role gets a token without moving any other id.
SPECIAL_TOKENS: tuple[str, ...] = (*_TAKEN, *(f"<|reserved_{i}|>" for i in range(len(_TAKEN), 32)))
