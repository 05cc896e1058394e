"""The models that an endpoint lists: their context windows, and whether it returns the tokens of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.agent.policy.connection import connect
from etude.agent.policy.wire.token_fields import ASK, CHAT, FORMAT
from etude.core.redact.keys import bearer

if TYPE_CHECKING:
    import httpx

# Timeout of the first request: long enough for a sleeping endpoint, short enough for a waiting user.
PROBE_TIMEOUT_S = 10.0
# A smaller number in the list can't be the context window of a usable model.
MIN_WINDOW_TOKENS = 1024
# vLLM and SGLang, OpenRouter and LM Studio, llama.cpp, Mistral, others.
_WINDOW_FIELDS = (
    "max_model_len",
    "context_length",
    "loaded_context_length",
    "n_ctx",
    "max_context_length",
    "context_window",
)


@dataclass(frozen=True)
class ListedModel:
    """A row of the list. `chat`: the fingerprint of the chat format that renders its prompts; "" where it is not known."""

    window_tokens: int | None = None  # prompt and answer together; None: not stated
    returns_tokens: bool = False
    chat: str = ""
    chat_format: str = ""  # its name


async def ask_for_models(url: str, key_env: str) -> httpx.Response:
    """What the endpoint at `url` (".../v1") answers to the question for its models. Raises httpx.TransportError, httpx.InvalidURL,
    ConnectionSettingError, BadKey."""
    address = f"{url.rstrip('/')}/models"
    async with connect(address, PROBE_TIMEOUT_S) as client:
        return await client.get(address, headers=bearer(key_env))


def listed_models(response: httpx.Response) -> dict[str, ListedModel]:
    """The models of an answer, by name. Empty for an endpoint without such a list."""
    try:
        rows = response.json()["data"] if response.status_code == 200 else []
        return {str(row["id"]): _listed(row) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _listed(row: dict[str, Any]) -> ListedModel:
    """Servers use different field names for a model's window."""
    inner = [row.get(key) for key in ("meta", "top_provider", "model_info", "limits")]
    places = [row, *(place for place in inner if isinstance(place, dict))]
    sizes = [place[name] for name in _WINDOW_FIELDS for place in places if isinstance(place.get(name), int)]
    window = next((size for size in sizes if size >= MIN_WINDOW_TOKENS), None)
    chat, name = (value if isinstance(value := row.get(key), str) else "" for key in (CHAT, FORMAT))
    return ListedModel(window, row.get(ASK) is True, chat, name)
