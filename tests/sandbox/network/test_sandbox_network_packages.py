"""Packages through the door of a real sandbox: the machine's own index is asked, and only what the rule names comes in."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from etude.sandbox.egress.packages import discovery
from etude.sandbox.errors import Unsupported
from etude.sandbox.network import rules
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, PackageRule, SandboxSpec

WHEEL = b"a wheel"
CODE = """
import json, os, urllib.error, urllib.request
index = os.environ["PIP_INDEX_URL"]
def get(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        return error.code
page = get(index + "My_Tool/")
link = page.split(b'href="')[1].split(b"#")[0].decode()
print(json.dumps([get("http://127.0.0.1:3128" + link).decode(), page.count(b"href"), get(index + "own-project/"), os.environ["https_proxy"]]))
"""


async def _index(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        entry = {"url": "/files/t-1.whl", "hashes": {"sha256": hashlib.sha256(WHEEL).hexdigest()}}
        files = [
            {"filename": "t-1.whl", "upload-time": "2024-01-01T00:00:00Z", **entry},
            {"filename": "t-2.whl", "upload-time": "2025-01-01T00:00:00Z", **entry},
        ]
        page = json.dumps({"files": files}).encode()
        body = {"/simple/my-tool/": page, "/simple/own-project/": page, "/files/t-1.whl": WHEEL}.get(path)
        status = "200 OK" if body is not None else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/vnd.pypi.simple.v1+json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b""))
        await writer.drain()
        writer.close()


async def test_named_packages_come_in_up_to_their_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(_index, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    rule = PackageRule("pip", ("my-tool",), "2024-06-01")
    try:
        pool = await open_pool(SandboxSettings(backend="local", egress_cache=str(tmp_path)))
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        box = await pool.create(SandboxSpec(network=Network("allowlist", packages=(rule,))))
        done = await box.run(["python", "-c", CODE], timeout_s=60)
        assert json.loads(done.out) == ["a wheel", 1, 403, "http://127.0.0.1:3128"], done.err
        assert [(one.host, one.allowed) for one in box.decisions] == [("pip", True), ("pip", True), ("pip", False)]
        assert (tmp_path / "sha256" / hashlib.sha256(WHEEL).hexdigest()).read_bytes() == WHEEL
    finally:
        await pool.close()
        server.close()


async def test_a_switch_that_waits_for_an_index_does_not_undo_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()

    def slow() -> discovery.IndexConfiguration:
        found.wait(20)
        return discovery.IndexConfiguration((tmp_path.as_uri(),))

    monkeypatch.setattr(discovery, "pip", slow)
    try:
        pool = await open_pool(SandboxSettings(backend="local", egress_cache=str(tmp_path)))
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        box = await pool.create(SandboxSpec(network=Network("allowlist", ("one.example",))))
        rule = PackageRule("pip", ("my-tool",))
        wider = asyncio.ensure_future(box.set_network(Network("allowlist", ("two.example",), (rule,))))
        await asyncio.sleep(0.05)
        await box.set_network(Network())
        found.set()
        await wider
        assert box.spec.network == Network()
        code = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:3128/pip/simple/')"
        assert b"404" in (await box.run(["python", "-c", code], timeout_s=30)).err
        await box.set_network(Network("allowlist", ("two.example",), (rule,)))
        assert (await box.run(["python", "-c", code], timeout_s=30)).rc == 0
        assert box.spec.network.packages == (rule,)
    finally:
        found.set()
        await pool.close()


async def test_a_machine_without_npm_has_no_door_to_its_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        pool = await open_pool(SandboxSettings(backend="local"))
    except Unsupported as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(Unsupported, match="npm"):
            await pool.create(SandboxSpec(network=Network("allowlist", packages=(PackageRule("npm", ("a",)),))))
        assert pool.stats().live == 0
    finally:
        await pool.close()


def test_variables_point_at_the_door_only_where_there_is_one() -> None:
    assert rules.environment(Network()) == {}
    found = rules.environment(Network("allowlist", packages=(PackageRule("npm", ("a",)),)))
    assert found["npm_config_registry"] == "http://127.0.0.1:3128/npm/" and "PIP_INDEX_URL" not in found
    assert found["no_proxy"] == "127.0.0.1,localhost"
