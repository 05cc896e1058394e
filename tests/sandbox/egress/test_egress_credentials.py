"""Private mirrors: the host's credentials open them, for that server alone, and nothing inside ever sees them."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from egress_shelf import Shelf
from egress_town import Town
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.egress.packages import discovery, simple
from etude.sandbox.egress.packages.cache import FileCache
from etude.sandbox.egress.packages.discovery import IndexConfiguration
from etude.sandbox.egress.packages.npm import NpmIndex, NpmService
from etude.sandbox.egress.packages.pip import PipIndex, PipService
from etude.sandbox.egress.packages.rule import PackageFilter
from etude.sandbox.egress.packages.upstream import Credentials, IndexUpstream, bare
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, PackageRule, SandboxSpec

WORD = "s3cret-w0rd"
BASIC = "Basic " + base64.b64encode(f"me:{WORD}".encode()).decode()
EVERY = PackageFilter(frozenset(), None, frozenset(), True)


def private(shelf: Shelf) -> IndexConfiguration:
    """The shelf as a mirror that asks for a name and a password, with a link to itself that is whole."""
    shelf.lock = BASIC
    files = [
        {
            "filename": "a-1.0.tar.gz",
            "url": f"{shelf.url}/files/a-1.0.tar.gz",
            "hashes": {"sha256": hashlib.sha256(b"packed").hexdigest()},
            "upload-time": "2024-01-01T00:00:00Z",
        }
    ]
    row = {"meta": {"api-version": "1.1"}, "name": "a", "files": files}
    shelf.things["/simple/a/"] = (simple.JSON_TYPE, json.dumps(row).encode())
    shelf.things["/files/a-1.0.tar.gz"] = ("application/gzip", b"packed")
    return IndexConfiguration((f"http://me:{WORD}@127.0.0.1:{shelf.port}/simple",))


async def test_pages_and_files_of_a_private_mirror_are_had_and_hold_no_credential(
    town: Town, shelf: Shelf, tmp_path: Path
) -> None:
    index = PipIndex(IndexUpstream(private(shelf)), FileCache(tmp_path))
    await town.open([], {"pip": PipService(index, EVERY)})
    status, page = await town.fetch("/pip/simple/a/")
    assert status == 200 and WORD.encode() not in page and b"me:" not in page
    assert await town.fetch("/pip/files/a/a-1.0.tar.gz") == (200, b"packed")
    assert set(shelf.keys) == {BASIC}
    shelf.lock = "other"
    status, said = await town.fetch("/pip/simple/b/")
    assert status == 502 and b"credentials do not open it" in said and WORD.encode() not in said


async def test_a_token_of_npm_s_settings_opens_its_registry(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    shelf.lock = f"Bearer {WORD}"
    row = {
        "versions": {"1.0.0": {"dist": {"tarball": f"{shelf.url}/npm/a/-/a-1.0.0.tgz"}}},
        "time": {"1.0.0": "2024-01-01T00:00:00Z"},
    }
    shelf.things["/npm/a"] = ("application/json", json.dumps({**row, "dist-tags": {"latest": "1.0.0"}}).encode())
    place = (f"//127.0.0.1:{shelf.port}/npm/", WORD)
    index = NpmIndex(IndexUpstream(IndexConfiguration((f"{shelf.url}/npm/",), tokens=(place,))), FileCache(tmp_path))
    await town.open([], {"npm": NpmService(index, EVERY, "http://door/npm/")})
    status, page = await town.fetch("/npm/a")
    assert status == 200 and WORD.encode() not in page and set(shelf.keys) == {f"Bearer {WORD}"}


def test_tokens_are_read_where_npm_keeps_them_with_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rc, tool = tmp_path / "npmrc", tmp_path / "npm"
    rc.write_text(
        "registry=x\n//a.test/npm/:_authToken=${MY_TOKEN}\n//b.test/:_authToken = plain\n//c.test/:_authToken=${NONE}\n"
    )
    tool.write_text(
        f'#!/bin/sh\ncase "$3" in registry) echo https://a.test/npm/;; userconfig) echo {rc};; *) echo null;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("MY_TOKEN", WORD)
    found = discovery.npm([str(tool)])
    assert found.tokens == (("//a.test/npm/", WORD), ("//b.test/", "plain")) and WORD not in repr(found)


@given(
    st.sampled_from(
        ["http://b.test/x", "https://a.test/x", "http://a.test:81/x", "http://a.test.evil/x", "file:///a.test"]
    )
)
def test_no_other_server_is_reported(url: str) -> None:
    known = Credentials([f"http://me:{WORD}@a.test/simple"], [("//c.test/npm/", WORD)])
    assert known.of("http://a.test:80/files/x") == {"Authorization": BASIC} and WORD not in repr(known)
    assert known.of(url) == {} and known.of("https://c.test/other") == {}


def test_an_address_without_its_credentials_is_the_same_address() -> None:
    assert bare(f"https://me:{WORD}@a.test:8443/simple?x=1") == "https://a.test:8443/simple?x=1"
    assert bare("file:///srv/index") == "file:///srv/index"


async def test_inside_a_sandbox_the_mirror_serves_and_its_credential_is_nowhere(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = private(shelf)
    monkeypatch.setenv("PIP_INDEX_URL", configured.urls[0])
    try:
        pool = await open_pool(SandboxSettings(backend="local", egress_cache=str(tmp_path)))
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        assert discovery.pip().urls[0] == configured.urls[0]  # the variable is heard
        spec = SandboxSpec(network=Network("allowlist", packages=(PackageRule("pip", ("*",)),)))
        box = await pool.create(spec)
        code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:3128/pip/simple/a/').read().decode())"
        page = await box.run(["python3", "-c", code], timeout_s=30)
        assert page.rc == 0 and b"a-1.0.tar.gz" in page.out and set(shelf.keys) == {BASIC}
        look = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; cat /etc/pip.conf ~/.netrc 2>/dev/null; true"
        seen = await box.run(look, timeout_s=30)
        for text in (page.out, page.err, seen.out, seen.err):
            assert WORD.encode() not in text and base64.b64encode(f"me:{WORD}".encode()) not in text
        assert b"PIP_INDEX_URL=http://127.0.0.1:3128/pip/simple/" in seen.out
    finally:
        await pool.close()
