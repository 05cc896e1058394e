"""A prompt's blocks as the text of a request: text as it is, files that were attached with their path, links named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class UnusableBlock(Exception):
    """A block that can't be put into words; the message says which."""


def text_of(blocks: Sequence[Any], folder: Path) -> str:
    """Raises UnusableBlock for pictures and sounds, and for a prompt that says nothing."""
    text = "\n".join(_block(block, folder) for block in blocks)
    if not text.strip():
        raise UnusableBlock("an empty prompt: say what should be done")
    return text


def _block(block: Any, folder: Path) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"[{place(block.uri, folder)}]"
    if block.type == "resource" and (text := getattr(block.resource, "text", None)) is not None:
        return f'<file path="{place(block.resource.uri, folder)}">\n{text}\n</file>'
    kind = "binary resource" if block.type == "resource" else block.type
    raise UnusableBlock(f"this agent reads text only, not the {kind} of the prompt: describe it, or give a path")


def place(uri: str, folder: Path) -> str:
    """A `file:` address as a path, relative to the folder where it is in it; any other as it is."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
