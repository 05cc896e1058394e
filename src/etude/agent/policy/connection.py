"""HTTP clients of endpoints: by the environment's proxy, and errors of the network in words that name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.sandbox.egress.certificates import certificates
from etude.sandbox.egress.environment_proxy import proxy_for

if TYPE_CHECKING:
    import httpx


def connect(url: str, timeout_s: float) -> httpx.AsyncClient:
    """A client for this address. Raises ConnectionSettingError for a proxy, or certificates, that can't be used."""
    import httpx

    proxy = proxy_for(url)
    # The environment's proxies are read above: httpx refuses some of them even where NO_PROXY excepts the address.
    context = certificates()
    return httpx.AsyncClient(timeout=timeout_s, proxy=proxy.url if proxy else None, verify=context, trust_env=False)


def words_of(error: Exception, url: str) -> str:
    """A network error in words; the proxy is named where there is one."""
    proxy = proxy_for(url)
    words = str(error) or type(error).__name__
    return f"{words}, through the proxy {proxy.shown}" if proxy else words
