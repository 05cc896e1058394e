"""The seam to a model of meaning: texts in, unit vectors out. None is built in; any OpenAI-compatible `/v1/embeddings` endpoint serves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.errors import EmbedderFailed
from etude.core.redact.keys import api_key, bearer, mask_keys
from etude.core.trace.unicode import whole
from etude.sandbox.egress.address import split_address
from etude.sandbox.egress.certificates import certificates
from etude.sandbox.egress.environment_proxy import ConnectionSettingError, proxy_for

Vectors = NDArray[Any]
Role = Literal["query", "document"]
KEY_VARIABLE = "ETUDE_EMBEDDINGS_KEY"
TIMEOUT_S = 60.0
# A restarting server comes back within this; after it the error is the caller's.
ATTEMPTS = 3


class Embedder(Protocol):
    """`name` tells embedders apart whose vectors can't be compared; `embed` gives float32 (n, d) of unit length."""

    name: str

    def embed(self, texts: Sequence[str], role: Role) -> Vectors: ...


class EndpointEmbedder:
    """`query_prefix` and `document_prefix` are what asymmetric models want before a text. The key, if any, is in ETUDE_EMBEDDINGS_KEY.
    Raises BadKey for a key that no header can carry, AddressError."""

    def __init__(self, url: str, model: str, *, query_prefix: str = "", document_prefix: str = "") -> None:
        self.name = f"{model}|{document_prefix}"
        api_key(KEY_VARIABLE)
        split_address(url)
        self._url, self._model = f"{url.rstrip('/')}/embeddings", model
        self._prefix: dict[Role, str] = {"query": query_prefix, "document": document_prefix}

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """Raises EmbedderFailed with the endpoint's answer, BadKey for a key that no header can carry."""
        body = self._post({"model": self._model, "input": [self._prefix[role] + text for text in texts]})
        try:
            rows = sorted(body["data"], key=lambda row: row["index"])
            made = np.array([row["embedding"] for row in rows], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise EmbedderFailed(f"{self._url} answered no embeddings: {str(body)[:200]}") from error
        if made.ndim != 2 or len(made) != len(texts) or not np.isfinite(made).all():
            raise EmbedderFailed(
                f"{self._url} answered {made.shape} for {len(texts)} texts; is {self._model} an embedder?"
            )
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)

    def _post(self, body: dict[str, Any]) -> Any:
        import httpx

        headers = bearer(KEY_VARIABLE)
        try:
            proxy, context = proxy_for(self._url), certificates()
        except ConnectionSettingError as error:
            raise EmbedderFailed(f"{self._url} can't be asked: {error}") from error
        options: dict[str, Any] = {"proxy": proxy.url if proxy else None, "trust_env": False}
        options |= {"verify": context, "timeout": TIMEOUT_S}
        trouble = ""
        for _ in range(ATTEMPTS):
            try:
                response = httpx.post(self._url, json=whole(body), headers=headers, **options)
            except httpx.InvalidURL as error:
                raise EmbedderFailed(f"{self._url} can't be asked: {error}") from error
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}" + (f", through the proxy {proxy.shown}" if proxy else "")
                continue
            if response.status_code == 200:
                return _json(response.text, self._url)
            trouble = f"status {response.status_code}: {mask_keys(response.text)[:200]}"
            if response.status_code < 500 and response.status_code != 429:
                break
        raise EmbedderFailed(
            f"{self._url}: {trouble}; see that it runs, knows {self._model}, and that {KEY_VARIABLE} is right"
        )


def _json(text: str, url: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EmbedderFailed(f"{url} answered no JSON: {mask_keys(text)[:200]!r}") from error
