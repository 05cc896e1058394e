"""pip's index behind a door: named projects, published in time, with their digests; nothing else by any path."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from egress_shelf import Shelf
from egress_town import Town, get

from etude.sandbox.egress.errors import BadRule
from etude.sandbox.egress.packages import simple
from etude.sandbox.egress.packages.cache import FileCache
from etude.sandbox.egress.packages.discovery import IndexConfiguration
from etude.sandbox.egress.packages.pip import PipIndex, PipService
from etude.sandbox.egress.packages.rule import PackageFilter, moment, pip_name
from etude.sandbox.egress.packages.upstream import IndexUpstream

OLD, NEW = b"old contents", b"new contents"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stock(shelf: Shelf) -> None:
    files = [
        {"filename": name, "url": f"/files/{name}", "hashes": {"sha256": digest(data)}, "upload-time": time, "requires-python": ">=3.8",
         "yanked": yanked, "size": len(data), "core-metadata": {"sha256": digest(b"about")}}
        for name, data, time, yanked in [
            ("my_tool-1.0-py3-none-any.whl", OLD, "2024-01-01T10:00:00.000000Z", False),
            ("my_tool-2.0-py3-none-any.whl", NEW, "2025-01-01T10:00:00.000000Z", "broken"),
        ]
    ]  # fmt: skip
    shelf.things["/simple/my-tool/"] = (
        simple.JSON_TYPE,
        json.dumps({"meta": {"api-version": "1.1"}, "name": "my-tool", "files": files}).encode(),
    )
    shelf.things["/files/my_tool-1.0-py3-none-any.whl"] = ("application/zip", OLD)
    shelf.things["/files/my_tool-2.0-py3-none-any.whl"] = ("application/zip", NEW)
    shelf.things["/files/my_tool-1.0-py3-none-any.whl.metadata"] = ("text/plain", b"about")
    shelf.things["/simple/own-project/"] = ("text/html", b'<a href="x-1.tar.gz#sha256=00">x-1.tar.gz</a>')


def door(shelf: Shelf, cache: Path, until: str | None = "2024-06-01") -> PipService:
    upstream = IndexUpstream(IndexConfiguration((f"{shelf.url}/simple",)))
    rule = PackageFilter(frozenset({"my-tool", "missing"}), moment(until) if until else None)
    return PipService(PipIndex(upstream, FileCache(cache)), rule)


async def test_a_page_holds_what_was_published_in_time(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    stock(shelf)
    await town.open([], {"pip": door(shelf, tmp_path)})
    status, body = await town.fetch("/pip/simple/My.Tool/", f"Accept: {simple.JSON_TYPE}")
    (file,) = json.loads(body)["files"]
    assert status == 200 and file["filename"] == "my_tool-1.0-py3-none-any.whl"
    assert file["url"] == "/pip/files/my-tool/my_tool-1.0-py3-none-any.whl"
    assert file["hashes"] == {"sha256": digest(OLD)} and file["requires-python"] == ">=3.8"
    status, body = await town.fetch("/pip/simple/my-tool/")
    assert (
        b"2.0" not in body and f"#sha256={digest(OLD)}".encode() in body and b'data-requires-python="&gt;=3.8"' in body
    )


async def test_a_file_is_served_with_its_digest_and_kept(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    stock(shelf)
    await town.open([], {"pip": door(shelf, tmp_path)})
    path = "/pip/files/my-tool/my_tool-1.0-py3-none-any.whl"
    assert await town.fetch(path) == (200, OLD)
    assert (tmp_path / "sha256" / digest(OLD)).read_bytes() == OLD
    del shelf.things["/files/my_tool-1.0-py3-none-any.whl"]
    assert await town.fetch(path) == (200, OLD)
    assert await town.fetch(f"{path}.metadata") == (200, b"about")


async def test_neither_other_projects_nor_newer_files_are_served_by_any_path(
    town: Town, shelf: Shelf, tmp_path: Path
) -> None:
    stock(shelf)
    await town.open([], {"pip": door(shelf, tmp_path)})
    refused = {
        "/pip/simple/own-project/": 403,
        "/pip/simple/Own_Project": 403,
        "/pip/files/own-project/x-1.tar.gz": 403,
        "/pip/files/my-tool/my_tool-2.0-py3-none-any.whl": 403,
        "/pip/files/my-tool/my_tool-2.0-py3-none-any.whl.metadata": 403,
        "/pip/files/my-tool/x-1.tar.gz": 404,
        "/pip/files/my-tool/../own-project/x-1.tar.gz": 404,
        "/pip/files/my-tool/..%2fown-project%2fx-1.tar.gz": 404,
        "/pip/simple/missing/": 404,
        "/pip/simple/..%2f..%2fetc/": 404,
        "/pip/": 404,
        "/npm/left-pad": 404,
    }
    for path, status in refused.items():
        assert (await town.fetch(path))[0] == status, path
    records = await town.recorded(len(refused))
    assert not any(record.allowed for record in records)
    assert all(record.reason and record.path for record in records)
    assert "/simple/own-project/" not in shelf.asked


async def test_only_reading_is_possible(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    await town.open([], {"pip": door(shelf, tmp_path)})
    assert await town.status(get("/pip/simple/", "x", method="POST")) == 405
    status, body = await town.fetch("/pip/simple/")
    assert status == 200 and b"my-tool" in body and b"own-project" not in body


async def test_a_file_that_is_not_what_its_digest_says_never_arrives_whole(
    town: Town, shelf: Shelf, tmp_path: Path
) -> None:
    stock(shelf)
    shelf.things["/files/my_tool-1.0-py3-none-any.whl"] = ("application/zip", b"x" * len(OLD))
    await town.open([], {"pip": door(shelf, tmp_path)})
    _, body = await town.fetch("/pip/files/my-tool/my_tool-1.0-py3-none-any.whl")
    assert len(body) < len(OLD)
    (record,) = await town.recorded(1)
    assert record.status == 502 and "sha256" in record.reason
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_spoilt_cache_is_noticed_and_mended(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    stock(shelf)
    await town.open([], {"pip": door(shelf, tmp_path)})
    path = "/pip/files/my-tool/my_tool-1.0-py3-none-any.whl"
    await town.fetch(path)
    (tmp_path / "sha256" / digest(OLD)).write_bytes(b"spoilt bytes")
    assert (await town.fetch(path))[1] != b"spoilt bytes"
    assert await town.fetch(path) == (200, OLD)


async def test_files_without_a_date_are_late_and_without_a_digest_absent(
    town: Town, shelf: Shelf, tmp_path: Path
) -> None:
    page = f'<a href="../../files/a-1.whl#sha256={digest(OLD)}">a</a> <a href="../../files/b-1.whl">b</a>'.encode()
    shelf.things["/simple/my-tool/"] = ("text/html", page)
    shelf.things["/files/a-1.whl"] = ("application/zip", OLD)
    await town.open([], {"pip": door(shelf, tmp_path)})
    assert b"a-1.whl" not in (await town.fetch("/pip/simple/my-tool/"))[1]
    assert (await town.fetch("/pip/files/my-tool/a-1.whl"))[0] == 403
    town.journal.decisions.clear()
    await town.open([], {"pip": door(shelf, tmp_path, until=None)})
    page = (await town.fetch("/pip/simple/my-tool/"))[1]
    assert b"a-1.whl" in page and b"b-1.whl" not in page
    assert await town.fetch("/pip/files/my-tool/a-1.whl") == (200, OLD)


async def test_a_page_of_the_web_can_not_lead_to_a_file_of_this_machine(
    town: Town, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.things["/simple/my-tool/"] = ("text/html", b'<a href="file:///etc/passwd#sha256=00">p</a>')
    shelf.redirects["/simple/missing/"] = "file:///etc/passwd"
    await town.open([], {"pip": door(shelf, tmp_path, until=None)})
    assert (await town.fetch("/pip/simple/my-tool/"))[0] == 502
    assert (await town.fetch("/pip/simple/missing/"))[0] == 502


async def test_real_pip_installs_through_the_door_and_finds_nothing_newer(
    town: Town, shelf: Shelf, tmp_path: Path
) -> None:
    for version in ("1.0", "2.0"):
        path = tmp_path / f"my_tool-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            about = f"my_tool-{version}.dist-info"
            wheel.writestr("my_tool.py", f"VERSION = {version!r}\n")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: my-tool\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
        shelf.things[f"/files/{path.name}"] = ("application/zip", path.read_bytes())
    entries = [
        {
            "filename": path.rpartition("/")[2],
            "url": path,
            "hashes": {"sha256": digest(data)},
            "upload-time": "2024-01-01T00:00:00Z" if "-1.0-" in path else "2025-01-01T00:00:00Z",
        }
        for path, (_, data) in shelf.things.items()
    ]
    shelf.things["/simple/my-tool/"] = (simple.JSON_TYPE, json.dumps({"files": entries}).encode())
    await town.open([], {"pip": door(shelf, tmp_path / "cache")})
    target = tmp_path / "target"
    command = [
        sys.executable, "-m", "pip", "--isolated", "install", "--no-cache-dir", "--target", str(target),
        "--index-url", f"http://127.0.0.1:{town.port}/pip/simple/", "my_tool",
    ]  # fmt: skip
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (target / "my_tool.py").read_text() == "VERSION = '1.0'\n"
    command[-1] = "my_tool==2.0"
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0 and "No matching distribution" in done.stderr


def test_a_date_is_the_end_of_its_day() -> None:
    rule = PackageFilter(frozenset(), moment("2024-05-01"))
    assert rule.in_time("2024-05-01T23:59:59.999Z") and not rule.in_time("2024-05-02T00:00:00Z")
    assert not rule.in_time(None) and not rule.in_time("yesterday")
    assert PackageFilter(frozenset(), moment("2024-05-01T12:00:00+02:00")).in_time("2024-05-01T10:00:00Z")
    with pytest.raises(BadRule):
        moment("first of May")


def test_names_are_normalised_as_pip_does() -> None:
    assert pip_name("My__Tool.x") == "my-tool-x"
    for text in ("", "-", "a b", "../x", "ä"):
        with pytest.raises(BadRule):
            pip_name(text)
