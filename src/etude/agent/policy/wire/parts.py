"""The content of a message as a string or as parts: the text in it, and the thinking that some providers put among the parts."""

from __future__ import annotations

from typing import Any

_TEXT = frozenset(("text", "output_text", "input_text"))
_THINKING = frozenset(("thinking", "reasoning"))


def text_of(content: Any) -> str:
    """The text, whether it came as a string, as parts, or not at all; a part without text says nothing."""
    if isinstance(content, str):
        return content
    return "".join(_text(part) for part in content) if isinstance(content, list) else ""


def thinking_of(content: Any) -> str:
    """The thinking among the parts."""
    if not isinstance(content, list):
        return ""
    return "".join(_inner(part) for part in content if isinstance(part, dict) and part.get("type") in _THINKING)


def is_plain(content: Any) -> bool:
    """Whether it holds nothing but text, so that its text says all of it."""
    return not isinstance(content, list) or all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type", "text") in _TEXT) for part in content
    )


def append_part(parts: list[Any], piece: Any) -> list[Any]:
    """The parts of a stream so far with one more piece: text goes on with text, thinking with thinking."""
    for new in piece if isinstance(piece, list) else [{"type": "text", "text": piece}] if piece else []:
        last = parts[-1] if parts else None
        if isinstance(new, dict) and isinstance(last, dict) and last.get("type") == new.get("type"):
            parts = [*parts[:-1], _extended(last, new)]
        else:
            parts = [*parts, new]
    return parts


def _extended(last: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    grown = dict(last)
    for key, value in new.items():
        held = grown.get(key)
        if key == "type" or value is None:
            continue
        if isinstance(held, str) and isinstance(value, str):
            grown[key] = held + value
        elif isinstance(held, list) and isinstance(value, list):
            grown[key] = append_part(held, value)
        else:
            grown[key] = value
    return grown


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type", "text") not in _TEXT:
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _inner(part: dict[str, Any]) -> str:
    value = next((part[key] for key in ("thinking", "reasoning", "text") if part.get(key) is not None), "")
    return value if isinstance(value, str) else text_of(value)
