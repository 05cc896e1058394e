"""The tokens of an answer as fields of a chat completion: an extension that `etude serve` and `etude capture` speak on both ends.

A request with `return_token_ids` gets vLLM's fields `prompt_token_ids` (of the answer) and `token_ids` (of a choice), and in addition `etude`
(of a choice): weight versions, log-probabilities and routes. In a stream the fields come in any chunk; ids are joined. An endpoint says in its
list of models that it knows the extension, because others refuse a field that they do not know.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from etude.agent.policy.wire.errors import WireError
from etude.core.trace.completion import SampledTokens

ASK = "return_token_ids"  # of a request; also the key of a model's row in the list of models
CHAT, FORMAT = "chat_fingerprint", "chat_format"  # of a model's row: the chat format that renders its prompts
PROMPT, IDS, ORIGIN = "prompt_token_ids", "token_ids", "etude"
_ROUTE_TYPES = ("uint8", "uint16")


def listed_fields(chat: str, name: str) -> dict[str, Any]:
    """What a model's row says of the extension: the fingerprint and the name of its chat format, "" without one."""
    return {ASK: True, CHAT: chat, FORMAT: name}


def origin_of(tokens: SampledTokens) -> dict[str, Any]:
    """The field `etude` of a choice."""
    origin: dict[str, Any] = {"versions": tokens.versions, "logprobs": tokens.logprobs}
    routes = tokens.routes
    if routes is not None:
        data = base64.b64encode(routes.tobytes()).decode()
        start = tokens.route_start
        origin["routes"] = {"data": data, "dtype": str(routes.dtype), "shape": [*routes.shape], "start": start}
    return {ORIGIN: origin}


def token_fields(prompt: Sequence[int], tokens: SampledTokens) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a whole answer and of its choice."""
    return {PROMPT: list(prompt)}, {IDS: tokens.ids, **origin_of(tokens)}


def read_tokens(body: Mapping[str, Any], choice: Mapping[str, Any]) -> tuple[tuple[int, ...], SampledTokens] | None:
    """The prompt's ids and what was sampled after them; None where the fields are absent. Raises WireError where they contradict each other."""
    if ORIGIN not in choice or IDS not in choice or PROMPT not in body:
        return None
    prompt, ids, origin = body[PROMPT], choice[IDS], choice[ORIGIN]
    if not isinstance(origin, dict):
        raise WireError(f"{ORIGIN} is no object; the server's extension has another version")
    logprobs, versions = origin.get("logprobs", ()), origin.get("versions", ())
    if not (_integers(prompt) and _integers(ids) and _integers(versions, least=-1) and _numbers(logprobs)):
        raise WireError(f"{PROMPT}, {IDS} and {ORIGIN} must hold numbers; the server's extension has another version")
    if not len(ids) == len(logprobs) == len(versions):
        raise WireError(f"{len(ids)} token ids come with {len(logprobs)} logprobs and {len(versions)} versions")
    rows, start = _routes(origin.get("routes"), len(prompt) + len(ids))
    return tuple(prompt), SampledTokens(list(ids), [float(value) for value in logprobs], list(versions), rows, start)


def _integers(value: Any, least: int = 0) -> bool:
    return isinstance(value, list) and all(type(one) is int and least <= one < 2**31 for one in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) in (int, float) and math.isfinite(one) for one in value)


def _routes(row: Any, length: int) -> tuple[np.ndarray | None, int]:
    """(N, L_moe, K) and the position of the first row among `length` tokens."""
    if row is None:
        return None, 0
    try:
        shape, start, kind = row["shape"], row["start"], row["dtype"]
        data = base64.b64decode(row["data"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the routes of an answer can't be read ({type(error).__name__}: {error})") from error
    if kind not in _ROUTE_TYPES or not _integers(shape) or len(shape) != 3 or type(start) is not int or start < 0:
        raise WireError(f"routes of type {str(kind)[:20]} and shape {str(shape)[:60]} are none")
    if math.prod(shape) * np.dtype(kind).itemsize != len(data) or start + shape[0] > length:
        raise WireError(
            f"routes of shape {shape} from position {start} do not fit {len(data)} bytes and {length} tokens"
        )
    return np.frombuffer(data, dtype=kind).reshape(shape).copy(), start
