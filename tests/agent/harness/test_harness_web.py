"""The web seams: one working provider, pages as text, and never an address of this machine or its network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.services import WebError, WebHit
from etude.agent.harness.web.fetch import MAX_PAGE_BYTES, PageFetch, is_public, text_of
from etude.agent.harness.web.searx import SearxSearch
from etude.sandbox.egress.address import AddressError


def searx(answer: Callable[[httpx.Request], httpx.Response]) -> SearxSearch:
    return SearxSearch("http://search.example/search", transport=httpx.MockTransport(answer))


async def test_results_come_in_the_endpoints_order() -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        rows = [{"title": f"T{i}", "url": f"https://e/{i}", "content": "some \n words"} for i in range(3)]
        return httpx.Response(200, json={"results": rows})

    assert await searx(answer).search("a b", 2) == [
        WebHit("T0", "https://e/0", "some words"),
        WebHit("T1", "https://e/1", "some words"),
    ]
    assert asked[0].params["q"] == "a b" and asked[0].params["format"] == "json"


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: httpx.Response(403), "answered 403; is its JSON format switched on"),
        (lambda _: httpx.Response(200, text="<html>"), "did not answer with JSON results"),
        (lambda _: httpx.Response(200, json={"results": [{}]}), "did not answer with JSON results"),
        (lambda _: httpx.Response(200, json=[]), "did not answer with JSON results"),
        (unreachable, "can't be reached: ConnectError"),
    ],
)
async def test_what_a_broken_endpoint_does_is_reported(answer: Any, words: str) -> None:
    with pytest.raises(WebError, match=words):
        await searx(answer).search("x", 1)
    with pytest.raises(WebError, match="an empty query"):
        await searx(answer).search(" ", 1)


NAMES = {
    "public.example": ["93.184.216.34"],
    "inner.example": ["10.0.0.7"],
    "both.example": ["93.184.216.34", "127.0.0.1"],
}


async def resolver(host: str, port: int) -> list[str]:
    if host not in NAMES and ":" not in host and not host[0].isdigit():
        raise OSError("unknown")
    return NAMES.get(host, [host])


def fetcher(answer: Callable[[httpx.Request], httpx.Response]) -> PageFetch:
    return PageFetch(resolver=resolver, transport=httpx.MockTransport(answer))


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, html="<h1>Hi</h1><p>a&amp;b</p><script>x()</script>")

    assert await fetcher(answer).fetch("https://public.example/a?b=c") == "# Hi\n\na&b"
    assert seen[0].url.host == "93.184.216.34" and seen[0].headers["host"] == "public.example"
    assert seen[0].extensions["sni_hostname"] == "public.example" and seen[0].url.query == b"b=c"


@pytest.mark.parametrize(
    "url",
    ["http://inner.example/", "http://both.example/", "http://127.0.0.1:8000/", "http://169.254.169.254/latest/meta-data",
     "http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://0.0.0.0/", "http://192.168.1.1/"],
)  # fmt: skip
async def test_no_private_address_is_connected_to(url: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"connected to {request.url}")

    with pytest.raises(WebError, match="is not on the public web"):
        await fetcher(answer).fetch(url)

    def redirect(request: httpx.Request) -> httpx.Response:
        assert request.headers["host"] == "public.example"
        return httpx.Response(302, headers={"location": url})

    with pytest.raises(WebError, match="is not on the public web"):
        await fetcher(redirect).fetch("http://public.example/")


@pytest.mark.parametrize(
    ("url", "answer", "words"),
    [
        ("ftp://public.example/", None, "is no http or https address"),
        ("file:///etc/passwd", None, "is no http or https address"),
        ("nonsense", None, "is no http or https address"),
        ("http://public.example:99999/", None, "is no address"),
        ("http://unknown.example/", None, "no address for unknown.example"),
        ("http://public.example/", lambda _: httpx.Response(404), "answered 404"),
        (
            "http://public.example/",
            lambda _: httpx.Response(200, content=b"x", headers={"content-type": "image/png"}),
            "is image/png, not text",
        ),
        ("http://public.example/", lambda _: httpx.Response(200, text="x" * (MAX_PAGE_BYTES + 1)), "larger than 2 MiB"),
        (
            "http://public.example/",
            lambda _: httpx.Response(302, headers={"location": "/again"}),
            "more than 5 redirects",
        ),
        ("http://public.example/", unreachable, "can't be fetched: ConnectError"),
    ],
)
async def test_what_is_no_page_is_reported(url: str, answer: Any, words: str) -> None:
    with pytest.raises(WebError, match=words):
        await fetcher(answer or unreachable).fetch(url)


async def test_other_encodings_and_plain_text_are_read() -> None:
    latin = httpx.Response(
        200, content="café".encode("latin-1"), headers={"content-type": "text/plain; charset=latin-1"}
    )
    assert await fetcher(lambda _: latin).fetch("http://public.example/") == "café"
    odd = httpx.Response(200, content="café".encode(), headers={"content-type": "text/plain; charset=nonsense"})
    assert await fetcher(lambda _: odd).fetch("http://public.example/") == "café"


def test_a_page_keeps_headings_lists_links_and_code() -> None:
    html = (
        "<head><title>t</title><style>p{}</style></head><body><h2>A  title</h2><ul><li>one<li>two <a href='https://e/x'>here</a>"
        "<a href='#top'>up</a></ul><pre>  a\n   b</pre><table><tr><td>1<td>2</table></body>"
    )
    assert text_of(html) == "## A title\n\n- one\n- two here (https://e/x)up\n\n  a\n   b\n\n\n | 1 | 2".replace(
        "\n\n\n", "\n\n"
    )


@given(st.text(st.sampled_from("<>/ab \n&;#'\"=!-pre"), max_size=80))
def test_any_text_is_read_as_some_page(text: str) -> None:
    assert isinstance(text_of(text), str)


@given(st.ip_addresses())
def test_only_global_addresses_are_public(address: Any) -> None:
    assert not is_public(str(address)) or address.is_global
    assert (
        not is_public("fe80::1%eth0")
        and not is_public("64:ff9b::a00:1")
        and not is_public("2002:a00:1::")
        and not is_public("x")
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b/",
        f"http://{'a' * 70}.com/",
        "http://[::1/",
        "http://h:abc/",
        "http://a\0b/",
        "http://exämple..com/",
        "http://h:99999/",
    ],
)
async def test_an_address_that_a_model_made_up_is_refused_in_words(url: str) -> None:
    with pytest.raises(WebError):
        await PageFetch(transport=httpx.MockTransport(unreachable)).fetch(url)


@pytest.mark.parametrize("location", ["http://[::1/x", "http://public.example:abc/", "http://a..b/"])
async def test_a_redirect_to_no_address_is_refused_in_words(location: str) -> None:
    with pytest.raises(WebError):
        await fetcher(lambda _: httpx.Response(302, headers={"location": location})).fetch("http://public.example/")


@pytest.mark.parametrize("charset", ["idna", "hex", "punycode", "none"])
async def test_a_page_in_a_charset_that_is_none_is_read_as_utf8(charset: str) -> None:
    headers = {"content-type": f"text/plain; charset={charset}"}
    page = fetcher(lambda _: httpx.Response(200, content="grüße".encode() * 30, headers=headers))
    assert "gr" in await page.fetch("http://public.example/")


@pytest.mark.parametrize("words", ["<![foo[x]]>", "<![", "<!--", "<?", "</", "<a ", "<!", "<a b='"])
def test_openings_without_end_cost_no_more_than_their_length(words: str) -> None:
    assert "the end" in text_of(f"<p>{words * 30_000}</p><p>the end</p>") or words.startswith(("<a", "<!", "<?", "</"))
    text_of(words * 30_000)


def test_what_follows_a_comment_without_end_is_still_read() -> None:
    assert text_of("<p>one<!-- two --> three<!-- four <b>five</b>") == "one three four five"
    assert text_of("a <![if x]>b<![endif]> c <") == "a b c <"


def test_a_search_endpoint_whose_address_is_none_is_refused_at_once() -> None:
    with pytest.raises(AddressError, match="write one like"):
        SearxSearch("http://h:abc/search")
