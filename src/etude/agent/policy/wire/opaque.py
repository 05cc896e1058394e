"""Fields of a turn and its calls that only their provider understands: found in answers, joined from streams, sent back as they came.

Providers that think refuse a history that lacks what they sent with a turn: their thinking under the name they use for it, thought
signatures (`extra_content`), `reasoning_details`. None of it means anything to another provider, which may refuse it in turn.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

# The names under which endpoints send thinking as text: DeepSeek's (also vLLM's and llama.cpp's), OpenRouter's, Copilot's.
THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
# Fields of an answer's message that this program reads, or that no endpoint takes back.
_READ = frozenset("role content tool_calls function_call refusal annotations audio name tool_call_id".split())
_READ_OF_CALL = frozenset("id type index function".split())
_READ_OF_FUNCTION = frozenset("name arguments".split())


def provider_of(url: str, model: str) -> str:
    """What identifies a provider: the endpoint's address (scheme, host, port, path; no user, no query) and the model's name.

    The same address with another model counts as another provider: signatures of one model are refused by the next."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}{port}{parts.path.rstrip('/')}#{model}"


def fields_of_turn(row: dict[str, Any]) -> dict[str, Any]:
    """A message's fields that are neither read nor null."""
    return {key: value for key, value in row.items() if key not in _READ and value is not None}


def fields_of_call(row: dict[str, Any]) -> dict[str, Any]:
    """A call's fields that are neither read nor null; those of its function are under `function`."""
    found = {key: value for key, value in row.items() if key not in _READ_OF_CALL and value is not None}
    function = row.get("function") or {}
    inner = {key: value for key, value in function.items() if key not in _READ_OF_FUNCTION and value is not None}
    return {**found, "function": inner} if inner else found


def joined_field(name: str, held: Any, piece: Any) -> Any:
    """As `joined`, for a field of the turn itself: some servers repeat a field with every piece, such as `service_tier`."""
    repeated = isinstance(held, str) and held == piece and name not in THINKING_FIELDS
    return held if repeated else join(held, piece)


def join(held: Any, piece: Any) -> Any:
    """What two pieces of a streamed field are together: texts one after the other, objects key by key, lists item by item."""
    if held is None or piece is None:
        return held if piece is None else piece
    if isinstance(held, str) and isinstance(piece, str):
        return held + piece
    if isinstance(held, dict) and isinstance(piece, dict):
        return held | {key: joined_named(key, held.get(key), value) for key, value in piece.items()}
    if isinstance(held, list) and isinstance(piece, list):
        return _lists(held, piece)
    return piece


# Of an item that comes in pieces: what names it, and does not grow.
_NAMES = frozenset("type id index format signature role".split())


def joined_named(key: str, held: Any, piece: Any) -> Any:
    """As `joined`; a field that names its object is the last one sent."""
    return (held if piece is None else piece) if key in _NAMES else join(held, piece)


def _lists(held: list[Any], piece: list[Any]) -> list[Any]:
    """Items with the same index and type are pieces of one item; all others follow each other."""
    items = list(held)
    for new in piece:
        is_piece = isinstance(new, dict) and new.get("index") is not None
        at = next((i for i, old in enumerate(items) if _same(old, new)), None) if is_piece else None
        if at is None:
            items.append(new)
        else:
            items[at] = join(items[at], new)
    return items


def _same(old: Any, new: dict[str, Any]) -> bool:
    return isinstance(old, dict) and (old.get("index"), old.get("type")) == (new["index"], new.get("type"))
