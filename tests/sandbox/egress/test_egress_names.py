"""One spelling of a host, or none; the allow-list; addresses that no one may dial."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.egress import dialer, targets
from etude.sandbox.egress.errors import BadRule, RequestRefused
from etude.sandbox.egress.policy import AllowList, AllowRule

ADDRESSES = [
    "127.0.0.1", "127.1", "127.0.0.1.", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "1.2.3", "0", "[::1]", "[::ffff:127.0.0.1]",
    "::1", "fe80::1%eth0", "example.0x7f", "0x",
]  # fmt: skip
NO_NAMES = [
    "", ".", "example.org.", "user@example.org", "exa mple.org", "example..org", "-a.org", "a-.org", "ex%61mple.org", "exämple.org", "１２７.0.0.1",
    "example.org\r\n", "example.org/", "example.org\\", "example.org#", "a" * 64 + ".org", "a." * 127 + "org", "evil.org\0.example.org",
]  # fmt: skip
FORBIDDEN = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8", "198.18.0.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "2002:7f00:1::1", "2002:a9fe:a9fe::", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "2001:0:7f00:1::", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_in_any_spelling_is_no_host_name(text: str) -> None:
    """Test 36 of docs/sandbox.md."""
    for read in (targets.authority, lambda host: targets.absolute(f"http://{host}/")):
        with pytest.raises(RequestRefused) as caught:
            read(f"{text}:443")
        assert caught.value.status == 403


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_plain_host_name_is_refused(text: str) -> None:
    """Test 36 of docs/sandbox.md."""
    with pytest.raises(RequestRefused):
        targets.host_name(text)


def test_case_does_not_matter_and_is_gone_afterwards() -> None:
    """Test 36 of docs/sandbox.md."""
    assert targets.authority("EXAMPLE.Org:443") == targets.RequestTarget("example.org", 443)
    assert targets.absolute("HTTP://Example.ORG:8080/A?b=C") == targets.RequestTarget("example.org", 8080, "/A?b=C")
    assert targets.absolute("http://example.org?q") == targets.RequestTarget("example.org", 80, "/?q")


@pytest.mark.parametrize(
    "text", ["example.org", "example.org:", "example.org:0", "example.org:65536", "example.org:+80", "example.org:080", "example.org:8 0", "a.org:٣"]
)  # fmt: skip
def test_a_tunnel_needs_a_plain_port(text: str) -> None:
    with pytest.raises(RequestRefused):
        targets.authority(text)


@pytest.mark.parametrize(
    "text", ["https://example.org/", "ftp://example.org/", "//example.org/", "http:/example.org", "http://", "http://a.org@evil.org/",
             "http://user:pw@a.org:80/", "http://a.org\\@evil.org/", "http://a.org/#x", "http://a.org:/", "http://a.org:80:80/"]
)  # fmt: skip
def test_a_url_that_two_parsers_could_read_differently_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused):
        targets.absolute(text)


@given(st.text(max_size=80))
def test_what_passes_is_always_a_plain_name(text: str) -> None:
    try:
        host = targets.host_name(text)
    except RequestRefused:
        return
    assert host == text.lower() and host.isascii() and not set(host) - set("abcdefghijklmnopqrstuvwxyz0123456789-_.")
    with pytest.raises(ValueError):
        ipaddress.ip_address(host)
    with pytest.raises(OSError):
        socket.inet_aton(host)  # which reads every old spelling


def test_rules_cover_hosts_trees_and_ports() -> None:
    policy = AllowList.parse(["Example.org", ".trees.net", "odd.org:8443"])
    allowed = [("example.org", 80), ("example.org", 443), ("trees.net", 443), ("a.b.trees.net", 80), ("odd.org", 8443)]
    refused = [("example.org", 22), ("www.example.org", 443), ("nottrees.net", 443), ("odd.org", 443), ("org", 443)]
    assert all(policy.allows(*pair) for pair in allowed) and not any(policy.allows(*pair) for pair in refused)
    assert not AllowList().allows("example.org", 443)


@pytest.mark.parametrize(
    "text", ["*.example.org", "127.0.0.1", "[::1]", "http://example.org", "example.org:", "", ".", "a.org:99999", "a b"]
)
def test_a_rule_that_is_none_says_what_to_write(text: str) -> None:
    with pytest.raises(BadRule, match=r"allow-list entry .*; give a host name such as"):
        AllowRule.parse(text)


@pytest.mark.parametrize("text", FORBIDDEN)
def test_no_address_but_a_public_one_may_be_dialled(text: str) -> None:
    """Test 36 of docs/sandbox.md: DNS rebinding."""
    assert dialer.refusal_reason(text)


def test_public_addresses_may_be_dialled_and_opened_networks_too() -> None:
    assert dialer.refusal_reason("93.184.216.34") is None
    assert dialer.refusal_reason("2606:2800:220:1::1") is None
    assert dialer.refusal_reason("127.0.0.1", (ipaddress.ip_network("127.0.0.0/8"),)) is None
    assert dialer.refusal_reason("127.0.0.1", (ipaddress.ip_network("10.0.0.0/8"),))


def test_a_public_address_of_this_host_is_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Own:
            return self

        def __exit__(self, *_: object) -> None: ...
        def connect(self, address: tuple[str, int]) -> None:
            self.address = address

        def getsockname(self) -> tuple[str, int]:
            return self.address

    monkeypatch.setattr(socket, "socket", Own)
    assert dialer.refusal_reason("93.184.216.34") == "an address of this host"
