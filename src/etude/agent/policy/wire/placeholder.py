"""Placeholders for the pictures, sounds and files that a client sends: models here read text.

A client keeps such a part in its history, so a refusal would end its session for good.
"""

from __future__ import annotations

from typing import Any

_KINDS = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "input_video": "video",
    "file": "file",
    "input_file": "file",
    "document": "document",
}
_SHOWN_CHARS = 200


def placeholder(part: dict[str, Any]) -> str | None:
    """The words for a part, with its type and size or its address; the text of a document or a refusal. None for other parts."""
    kind = _KINDS.get(str(part.get("type")))
    if kind is None and isinstance(part.get("refusal"), str):
        return part["refusal"]  # a model's no is text
    if kind is None:
        return None
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return source["data"]
    return "[" + ", ".join([kind, *_facts(part), "not shown]"])


def join_parts(texts: list[str]) -> str:
    """Parts one after the other; a placeholder begins and ends its line."""
    found = ""
    for text in texts:
        breaks = found and not found.endswith("\n") and (_is_one(text) or _is_one(found.rpartition("\n")[2]))
        found += ("\n" if breaks else "") + text
    return found


def _is_one(text: str) -> bool:
    return text.startswith("[") and text.endswith(", not shown]")


def _facts(part: dict[str, Any]) -> list[str]:
    """Media type and bytes of what came with the message; the address of what is elsewhere."""
    for holder in (part, *(value for value in part.values() if isinstance(value, dict))):
        media = holder.get("media_type") or holder.get("format")
        for key in ("data", "file_data", "url", "image_url", "video_url", "file_url"):
            value = holder.get(key)
            if not isinstance(value, str):
                continue
            if value.startswith("data:"):
                head, _, value = value.partition(",")
                media = head.removeprefix("data:").partition(";")[0] or media
            elif key not in ("data", "file_data"):
                return [value[:_SHOWN_CHARS]]
            return [*([str(media)] if media else []), f"{len(value.rstrip('=')) * 3 // 4} bytes"]
    name = next((part[key] for key in ("file_id", "filename") if isinstance(part.get(key), str)), None)
    return [name[:_SHOWN_CHARS]] if name else []
