"""Web search through any endpoint that answers as SearXNG does: GET url?q=…&format=json -> {"results": [{title, url, content}]}."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etude.agent.harness.services import WebError, WebHit
from etude.sandbox.egress.address import split_address

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 20.0
# An excerpt longer than this is a page, which the other tool reads.
MAX_EXCERPT_CHARS = 500


class SearxSearch:
    """`url` is the address up to the question mark, for example http://127.0.0.1:8888/search. Raises AddressError."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        split_address(url)
        self._url, self._transport = url, transport

    async def search(self, query: str, limit: int) -> list[WebHit]:
        """In the endpoint's order. Raises WebError."""
        import httpx

        if not query.strip():
            raise WebError("an empty query; say what to look for")
        try:
            async with httpx.AsyncClient(transport=self._transport, timeout=TIMEOUT_S, trust_env=False) as client:
                answer = await client.get(self._url, params={"q": query, "format": "json"})
            answer.raise_for_status()
            rows = answer.json()["results"]
            return [_hit(row) for row in rows[:limit]]
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            remedy = "; is its JSON format switched on?" if status == 403 else ""
            raise WebError(f"the search endpoint answered {status}{remedy}") from error
        except httpx.HTTPError as error:
            raise WebError(f"the search endpoint can't be reached: {type(error).__name__}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WebError("the search endpoint did not answer with JSON results") from error


def _hit(row: dict[str, Any]) -> WebHit:
    text = " ".join(str(row.get("content") or "").split())
    return WebHit(str(row.get("title") or row["url"]), str(row["url"]), text[:MAX_EXCERPT_CHARS])
