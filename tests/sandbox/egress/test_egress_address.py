"""An address that no request can go to is refused with its value and the remedy; a key follows a redirect within its origin alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.egress.address import AddressError, origin_of, redirect_target, split_address
from etude.sandbox.egress.certificates import CertificateError, certificates
from etude.sandbox.egress.environment_proxy import proxy_for

BAD = [
    "http://h:abc/v1",
    "http://h:99999/v1",
    "http://[::1/v1",
    "ftp://h/v1",
    "h:8000/v1",
    "http:///v1",
    "http://h h/v1",
    "",
]


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_is_none_is_named_with_the_remedy(url: str) -> None:
    with pytest.raises(
        AddressError, match="is no address of an endpoint: .*; write one like http://127.0.0.1:8000/v1"
    ) as refused:
        split_address(url)
    assert repr(url) in str(refused.value)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(AddressError) as refused:
        split_address("http://me:sesame@h:abc/v1")
    assert "sesame" not in str(refused.value) and "[hidden]@h:abc" in str(refused.value)


@given(st.text(max_size=30) | st.text("htp:/[]@.%0", max_size=30).map(lambda rest: f"http://{rest}"))
def test_any_text_is_an_address_or_an_address_error(url: str) -> None:
    proxy_for(url)
    try:
        assert split_address(url).hostname
    except AddressError:
        return


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("http://h:8000/v1/x", "/v2/x", "http://h:8000/v2/x"),
        ("http://h/v1/x", "https://h/v1/x", "https://h/v1/x"),
        ("http://h:80/x", "https://h:443/x", "https://h:443/x"),
        ("http://h:8000/x", "https://h:8000/x", "https://h:8000/x"),
        ("https://h/x", "https://h:443/y", "https://h:443/y"),
        ("http://h:8000/x", "http://h:9999/x", None),
        ("http://h:8000/x", "https://h/x", None),
        ("https://h/x", "http://h/x", None),
        ("https://h/x", "http://h:443/x", None),
        ("http://h/x", "http://other/x", None),
        ("http://h/x", "http://h/x", None),
        ("http://h/x", "http://[::1/x", None),
        ("http://h/x", "http://h:abc/x", None),
        ("http://h/x", "", None),
    ],
)
def test_a_redirect_is_followed_within_its_origin_alone(url: str, location: str, target: str | None) -> None:
    assert redirect_target(url, location) == target


def test_an_origin_names_the_port_that_is_meant() -> None:
    assert origin_of("https://H/v1?q") == "https://h:443" and origin_of("http://h:8000/") == "http://h:8000"


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_can_not_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(CertificateError, match=f"SSL_CERT_FILE={file} can't be read .*or unset it"):
        certificates()
