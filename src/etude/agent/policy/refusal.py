"""What an endpoint's refusal says: too long a conversation, too large an answer, a field that it does not take.

Every server has its own words for it (vLLM, SGLang, llama.cpp, OpenAI, Anthropic, Gemini, Mistral, gateways). They are read for three
numbers: the model's window, the prompt's tokens, and the largest answer. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from etude.core.trace.plain_json import plain

_NUMBER = r"[*`'\"\s]*(\d[\d,_]*)"
# The window in tokens.
_WINDOW = [
    r"exceed context limit: [\d,_]+ \+ [\d,_]+ >" + _NUMBER,
    r"maximum (?:context|model|prompt|sequence) ?length (?:is|of)(?: only)?" + _NUMBER,
    r"(?:context|model|prompt)(?:'s)? (?:maximum )?(?:context )?(?:length|window|size) (?:is|of)(?: only)?(?: limited to)?"
    + _NUMBER,
    r"available context size \(" + _NUMBER,
    r"maximum model length of" + _NUMBER,
    r"context (?:limit|length|window|size)\W{0,3}(?:is|of|:|=)?" + _NUMBER,
    r"maximum number of tokens allowed \(" + _NUMBER,
    r"(?:with|has a|have a)" + _NUMBER + r"[- ]tokens? (?:maximum )?context",
    r"too large for model with" + _NUMBER,
    r"inputs.{0,80}max_new_tokens`? must be <=" + _NUMBER,
    r"\d[\d,_]* tokens? >" + _NUMBER + r" maximum",
    r"\bn_ctx\W+" + _NUMBER,
]
# The prompt in tokens.
_PROMPT = [
    r"\(" + _NUMBER + r"(?: tokens)? (?:in|of|from) (?:the |your )?(?:messages|text input|input|prompt)",
    r"(?:has|passed|contains|with|sent|is|:)" + _NUMBER + r" (?:input|prompt) tokens",
    r":" + _NUMBER + r" tokens from the input",
    r"(?:request|input|prompt) \((?:length )?" + _NUMBER,
    r"input token count\W+(?:of |is )?" + _NUMBER,
    r"(?:prompt|request) contains" + _NUMBER,
    r"prompt is too long:" + _NUMBER,
    r"exceed context limit:" + _NUMBER,
    r"Given:" + _NUMBER + r" `?inputs",
    r"(?:you sent|first)" + _NUMBER,
    r"\bn_prompt_tokens\W+" + _NUMBER,
]
# All that was asked for, and what of it was for the answer; the prompt may be given in several parts.
_TOTAL = [r"requested (?:about |a total of )?" + _NUMBER + r" tokens"]
_ANSWER = [_NUMBER + r"(?: tokens)? (?:in|for|of) the (?:completion|output)"]
# The most that one answer may have.
_OUTPUT = [
    r"supports? at most" + _NUMBER + r" (?:completion|output) tokens",
    r"max_(?:completion_|output_|new_)?tokens\W{1,3}\d[\d,_]* > " + _NUMBER,
    r"valid range of `?max_(?:completion_|output_|new_)?tokens`? is \[\d+, ?" + _NUMBER,
    r"(?<!\+ `)max_(?:completion_|output_|new_)?tokens`?\W+(?:must be|should be|is limited to|has to be)"
    r"(?: less than or equal to| at most| no more than| ?<=| in \[\d+,)?" + _NUMBER,
    r"maximum value for `?max_(?:completion_|output_|new_)?tokens`? is" + _NUMBER,
    r"maximum (?:allowed )?(?:number of )?(?:output|completion) tokens\W*(?:allowed )?(?:is|of|:)" + _NUMBER,
]
_TOO_LONG = re.compile(
    r"context[_ -]?(?:length|size|window|limit)|maximum (?:context|model|prompt|sequence) ?length|exceed_context_size|"
    r"reduce the length|too long|too many tokens|maximum number of tokens|input token count|too large for model with|"
    r"max_new_tokens`? must be <=|context the overflows|longer than the (?:maximum|model)",
    re.IGNORECASE,
)
# A field that is too long in itself: an id, a name, the list of tools. A shorter conversation would not help.
_FIELD_TOO_LONG = re.compile(
    r"\b(\w{1,64})(?:\[\d{1,9}\]){0,4}['\"`]{0,2}\s{0,2}:\s{0,2}(?:the )?(?:string|array|list|value|field)(?: is)? too long|"
    r"\b(?:names?|ids?|identifiers?|keys?|descriptions?|titles?|users?|schemas?|stop)\b"
    r"(?:(?!prompt|input|message|context|conversation|request)[^.:]){0,40}? too long",
    re.IGNORECASE,
)
# Fields that hold the conversation or a part of it.
_CONVERSATION = frozenset("messages content text input inputs prompt output arguments instructions system".split())
# A window that no agent works in: such a number is a parameter's limit.
_LEAST_WINDOW_TOKENS = 1024
# What is read of a refusal: some servers repeat the whole request in it, before or behind their own words.
_HEAD_CHARS, _TAIL_CHARS = 3000, 1000
_FILTERED = re.compile(r"content[_ -]?filter|content[_ -]policy|content management policy", re.IGNORECASE)
_OTHER_FIELD = re.compile(
    r"max_completion_tokens\W{0,3} instead|unsupported parameter\W+max_tokens|max_tokens\W{0,3} is not supported|"
    r"max_tokens\b.*\bmax_completion_tokens|max_completion_tokens\b.*\bmax_tokens|"
    r"unrecognized request argument supplied: max_tokens|unknown (?:field|parameter)\W+max_tokens\b",
    re.IGNORECASE | re.DOTALL,
)
_BROKEN_CALL = re.compile(
    r"tool_use_failed|failed to call a function|failed to parse tool|error parsing tool call", re.IGNORECASE
)
_ABOUT_LENGTH = (400, 413, 422, 500)  # 500: older llama.cpp
# Below this an answer is cut off in its first sentence: the conversation itself is too long.
LEAST_ANSWER_TOKENS = 256
# Servers count a template's own tokens in some places and not in others.
_MARGIN_TOKENS = 16

Kind = Literal["overflow", "output", "field", "filtered", "call", "other"]


@dataclass(frozen=True)
class Refusal:
    """`answer_tokens`: the largest answer that would be taken; of `output` alone it is always known."""

    kind: Kind
    window_tokens: int | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


def read_refusal(status: int, text: str, *, asked_tokens: int) -> Refusal:
    """What a refusal with this status and body is about. `asked_tokens`: the largest answer that the request allowed."""
    text = _ends(text)
    if _BROKEN_CALL.search(text):
        return Refusal("call")
    if status not in _ABOUT_LENGTH:
        return Refusal("other")
    window, prompt, most = _window(text), _first(_PROMPT, text), _first(_OUTPUT, text)
    total, answer = _first(_TOTAL, text), _first(_ANSWER, text)
    prompt = total - answer if total is not None and answer is not None else prompt
    if most is not None and LEAST_ANSWER_TOKENS <= most < asked_tokens:
        return Refusal("output", answer_tokens=most)
    if window is not None or status == 413 or _is_too_long(text):
        room = None if window is None or prompt is None else window - prompt - _MARGIN_TOKENS
        if room is not None and LEAST_ANSWER_TOKENS <= room < asked_tokens:
            return Refusal("output", window, prompt, room)
        return Refusal("overflow", window, prompt)
    if _FILTERED.search(text):
        return Refusal("filtered")
    return Refusal("field" if _OTHER_FIELD.search(text) else "other")


def error_words(text: str) -> str:
    """An error's words: the message of its JSON, or the text as it is."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
    found = error_of(body)
    return found if found is not None else text.strip()


def error_of(body: Any) -> str | None:
    """The message of an error's body, whatever form it has; None for a body that is none."""
    row = plain(body[0] if isinstance(body, list) and body else body)
    if not isinstance(row, dict):
        return None
    error = row.get("error")
    if isinstance(error, dict):
        found = error.get("message") or json.dumps(error, ensure_ascii=False)
        more = (error.get("metadata") or {}).get("raw") if isinstance(error.get("metadata"), dict) else None
        return f"{found}: {more}" if isinstance(more, str) else str(found)
    if error:
        return str(error)
    words = row.get("message") or row.get("detail") if "choices" not in row else None
    return words if isinstance(words, str) else None


def status_of(body: Any) -> int:
    """The HTTP status that an error in the body of a 200 means; 502 where it doesn't name one: such errors pass."""
    row = plain(body[0] if isinstance(body, list) and body else body)
    error = row.get("error") if isinstance(row, dict) else None
    found = error if isinstance(error, dict) else row if isinstance(row, dict) else {}
    for key in ("code", "status", "status_code"):
        value = str(found.get(key) or "")
        if value.isdecimal() and value.isascii() and 400 <= int(value[:4]) < 600:
            return int(value)
    kinds = f"{found.get('type') or ''} {found.get('code') or ''} {found.get('status') or ''}".lower()
    known = next((status for mark, status in _STATUS_BY_WORD if mark in kinds), None)
    words = _ends(error_of(body) or "")
    return known or (400 if _is_too_long(words) or _FILTERED.search(words) or _BROKEN_CALL.search(words) else 502)


_STATUS_BY_WORD = (
    ("context_length", 400),
    ("exceed_context", 400),
    ("invalid_request", 400),
    ("invalid_argument", 400),
    ("authentication", 401),
    ("permission", 403),
    ("not_found", 404),
    ("rate_limit", 429),
    ("resource_exhausted", 429),
    ("overloaded", 529),
)


def _ends(text: str) -> str:
    """A text's beginning and end; what is longer has no words of the server in between."""
    return text if len(text) <= _HEAD_CHARS + _TAIL_CHARS else f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def _is_too_long(text: str) -> bool:
    """Whether the conversation is too long, and not one field of it."""

    def without_field(found: re.Match[str]) -> str:
        return found[0] if (found[1] or "").lower() in _CONVERSATION else ""

    return _TOO_LONG.search(_FIELD_TOO_LONG.sub(without_field, text)) is not None


def _window(text: str) -> int | None:
    found = _first(_WINDOW, text)
    return found if found is not None and found >= _LEAST_WINDOW_TOKENS else None


def _first(patterns: list[str], text: str) -> int | None:
    """The first number that a pattern finds."""
    for pattern in patterns:
        if match := re.search(pattern, text, re.IGNORECASE):
            digits = re.sub(r"[,_]", "", match[1])
            return int(digits) if len(digits) < 10 else None
    return None
