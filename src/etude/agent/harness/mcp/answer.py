"""What a server answered, as text for the model: text as it is, pictures and sounds told of but not dumped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_types import CallToolResult


def text_of(result: CallToolResult) -> str:
    """All blocks in order; the structured content where there is no block at all."""
    rows = [_block(block) for block in result.content]
    if not rows and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(rows) or "ok, no output"


def _block(block: Any) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        words = f": {block.description}" if block.description else ""
        return f"[resource {block.uri}, {_kind(block)}{words}]"
    if block.type == "resource":
        inner = block.resource
        if (text := getattr(inner, "text", None)) is not None:
            return f"[resource {inner.uri}]\n{text}"
        return f"[resource {inner.uri}, {_kind(inner)}, {_bytes(inner.blob)} bytes, not shown]"
    return f"[{block.type}, {_kind(block)}, {_bytes(block.data)} bytes, not shown]"  # image, audio


def _kind(block: Any) -> str:
    return getattr(block, "mime_type", None) or "of no told type"


def _bytes(base64: str) -> int:
    """How many bytes a base64 text holds."""
    return len(base64.rstrip("=")) * 3 // 4
