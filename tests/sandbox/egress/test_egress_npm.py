"""npm's registry behind a door: named packages, versions published in time."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from egress_shelf import Shelf
from egress_town import Town

from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.packages.cache import FileCache
from etude.sandbox.egress.packages.discovery import IndexConfiguration
from etude.sandbox.egress.packages.npm import NpmIndex, NpmService, in_time
from etude.sandbox.egress.packages.rule import PackageFilter, moment
from etude.sandbox.egress.packages.upstream import IndexUpstream

TIMES = {
    "created": "2020-01-01T00:00:00Z", "modified": "2026-01-01T00:00:00Z",
    "1.0.0": "2024-01-01T00:00:00Z", "1.1.0-beta.1": "2024-02-01T00:00:00Z", "2.0.0": "2025-01-01T00:00:00Z",
}  # fmt: skip


def tarball(name: str, version: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        body = json.dumps({"name": name, "version": version}).encode()
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(body)
        archive.addfile(entry, io.BytesIO(body))
    return gzip.compress(held.getvalue(), mtime=0)  # the same bytes each time


def stock(shelf: Shelf, name: str = "left-thing") -> None:
    versions = {}
    for version in ("1.0.0", "1.1.0-beta.1", "2.0.0"):
        data = tarball(name, version)
        path = f"/store/{name}-{version}.tgz".replace("@", "").replace("scope/", "scope-")
        shelf.things[path] = ("application/octet-stream", data)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        versions[version] = {
            "name": name,
            "version": version,
            "dist": {"tarball": shelf.url + path, "integrity": integrity, "shasum": hashlib.sha1(data).hexdigest()},
        }
    tags = {"latest": "2.0.0", "next": "1.1.0-beta.1"}
    document = {"name": name, "versions": versions, "time": TIMES, "dist-tags": tags, "readme": "long"}
    shelf.things[f"/{name.replace('/', '%2F')}"] = ("application/json", json.dumps(document).encode())


def door(shelf: Shelf, cache: Path, town_port: int = 3128) -> NpmService:
    rule = PackageFilter(frozenset({"left-thing", "@scope/thing"}), moment("2024-06-01"))
    index = NpmIndex(IndexUpstream(IndexConfiguration((shelf.url,))), FileCache(cache))
    return NpmService(index, rule, f"http://127.0.0.1:{town_port}/npm/")


async def test_a_document_is_the_one_of_that_day(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    stock(shelf)
    await town.open([], {"npm": door(shelf, tmp_path)})
    status, body = await town.fetch("/npm/left-thing")
    document = json.loads(body)
    assert status == 200 and set(document["versions"]) == {"1.0.0", "1.1.0-beta.1"} == set(document["time"])
    assert document["dist-tags"] == {"latest": "1.0.0", "next": "1.1.0-beta.1"}
    dist = document["versions"]["1.0.0"]["dist"]
    assert dist["tarball"] == "http://127.0.0.1:3128/npm/left-thing/-/left-thing-1.0.0.tgz" and dist["integrity"]
    status, body = await town.fetch("/npm/left-thing/-/left-thing-1.0.0.tgz")
    assert (status, body) == (200, tarball("left-thing", "1.0.0"))


async def test_scoped_packages_have_both_spellings_of_their_slash(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    stock(shelf, "@scope/thing")
    await town.open([], {"npm": door(shelf, tmp_path)})
    for path in ("/npm/@scope%2fthing", "/npm/@scope/thing"):
        assert (await town.fetch(path))[0] == 200
    assert (await town.fetch("/npm/@scope/thing/-/thing-1.0.0.tgz"))[0] == 200


async def test_other_packages_and_newer_versions_are_refused(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    stock(shelf)
    stock(shelf, "own-project")
    await town.open([], {"npm": door(shelf, tmp_path)})
    refused = {
        "/npm/own-project": 403,
        "/npm/own-project/-/own-project-1.0.0.tgz": 403,
        "/npm/left-thing/-/left-thing-2.0.0.tgz": 403,
        "/npm/left-thing/../own-project": 404,
        "/npm/-/v1/search?text=x": 404,
        "/npm/": 404,
    }
    for path, status in refused.items():
        assert (await town.fetch(path))[0] == status, path
    assert not any(record.allowed for record in await town.recorded(len(refused)))


def test_latest_is_the_newest_release_that_is_left() -> None:
    entry = {"dist": {"tarball": "x"}}
    versions = {version: entry for version in ("1.0.0", "1.1.0-beta.1", "2.0.0")}
    document = {"name": "a", "versions": versions, "time": TIMES, "dist-tags": {"latest": "2.0.0"}}
    names = frozenset({"a"})
    assert in_time(document, PackageFilter(names, moment("2024-06-01")))["dist-tags"] == {"latest": "1.0.0"}
    assert in_time(document, PackageFilter(names, None))["dist-tags"] == {"latest": "2.0.0"}
    with pytest.raises(RequestRefused):
        in_time(document, PackageFilter(names, moment("2019-01-01")))


@pytest.mark.nightly  # npm itself takes seconds to start
async def test_real_npm_installs_through_the_door(town: Town, shelf: Shelf, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("no npm on this machine")
    stock(shelf)
    await town.open([], {"npm": door(shelf, tmp_path / "cache", 0)})
    town._doors[0].switch(town._doors[0]._state.policy, {"npm": door(shelf, tmp_path / "cache", town.port)})
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "p", "version": "1.0.0"}')
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "npm_config_registry": f"http://127.0.0.1:{town.port}/npm/",
        "npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false",
    }  # fmt: skip
    done = await asyncio.to_thread(
        subprocess.run, ["npm", "install", "left-thing"], cwd=project, env=environment, capture_output=True, text=True, timeout=100
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((project / "node_modules/left-thing/package.json").read_text())["version"] == "1.0.0"
