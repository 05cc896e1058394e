"""Which proxy the environment names for an address, and what is excepted."""

from __future__ import annotations

import pytest

from etude.sandbox.egress import environment_proxy
from etude.sandbox.egress.environment_proxy import Proxy, ProxyError, proxy_for

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
FAR = "https://api.example.com/v1"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_an_address_goes_through_the_proxy_of_its_scheme_or_of_all(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://10.0.0.1:3128")
    assert proxy_for(FAR) == Proxy("http://10.0.0.1:3128", variable)
    monkeypatch.setenv(variable, "10.0.0.1:3128")
    assert proxy_for(FAR) == Proxy("http://10.0.0.1:3128", variable)


def test_a_proxy_of_another_scheme_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://10.0.0.1:3128")
    assert proxy_for(FAR) is None and proxy_for("http://api.example.com") is not None


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "127.9.9.9", "localhost", "api.localhost", "[::1]:8000"])
def test_this_machine_is_never_asked_for_through_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://10.0.0.1:1080")
    assert proxy_for(f"http://{host}/v1") is None


@pytest.mark.parametrize(
    ("listed", "url", "direct"),
    [
        ("*", FAR, True),
        ("example.com", FAR, True),
        (".example.com", FAR, True),
        ("*.example.com", FAR, True),
        ("API.EXAMPLE.COM", FAR, True),
        ("ample.com", FAR, False),
        ("example.com:443", FAR, True),
        ("example.com:80", FAR, False),
        ("other.org, api.example.com", FAR, True),
        ("[::1]", FAR, False),
        ("[::1],[fd00::5]:8000", "http://[fd00::5]:8000/v1", True),
        ("fd00::5", "http://[fd00::5]:8000/v1", True),
        ("[fd00::5]:9", "http://[fd00::5]:8000/v1", False),
        ("fd00::/8", "http://[fd00::5]:8000/v1", True),
        ("10.0.0.0/8", "http://10.1.2.3/v1", True),
        ("10.1.2.3", "http://10.1.2.3:8000/v1", True),
        ("10.1.2.3:9", "http://10.1.2.3:8000/v1", False),
        ("192.168.0.0/16, ,", "http://10.1.2.3/v1", False),
        ("", FAR, False),
    ],
)
def test_no_proxy_excepts_names_addresses_and_networks(
    listed: str, url: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://10.0.0.1:3128")
    monkeypatch.setenv("NO_PROXY", listed)
    assert (proxy_for(url) is None) is direct


@pytest.mark.parametrize("value", ["ftp://h:1", "http://", "http://h:port", "socks4://h:1"])
def test_a_proxy_that_can_not_be_used_is_refused_by_its_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(ProxyError, match="ALL_PROXY"):
        proxy_for(FAR)
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert proxy_for(FAR) is None


def test_a_socks_proxy_without_its_package_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_proxy, "_has_socks", lambda: False)
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@10.0.0.1:1080")
    with pytest.raises(ProxyError, match="pip install socksio") as refused:
        proxy_for(FAR)
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)
