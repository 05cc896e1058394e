"""A model hub on loopback: repositories with commits and branches, files by digest, and faults that a test asks for.

It speaks what `huggingface_hub` asks of a hub: `/api/models/OWNER/NAME[/revision/REV]`, `/api/models/OWNER/NAME/tree/REV`,
`/OWNER/NAME/resolve/REV/FILE` with HEAD, GET and Range, and for large files a redirect to their content. Uploads come as the library
sends them without Xet: the repository is made, files are announced, large ones are put by their digest, and one commit names them all.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

LARGE = ".safetensors"


@dataclass
class Repository:
    """Commits by hash, branches by name. `token`: only requests with it are answered; `gated`: others get that code."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str = ""
    gated: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        sha = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.branches[branch] = sha
        return sha


@dataclass
class HubServer:
    """`cuts`: by file, after how many bytes each of the next answers ends. `replaced`: by file, other bytes than those listed."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    replaced: dict[str, bytes] = field(default_factory=dict)
    status: int = 0  # of every answer, if not 0
    delay_s: float = 0.0
    ignores_range: bool = False
    url: str = ""
    uploaded: dict[str, bytes] = field(default_factory=dict)  # large files by digest
    made: list[dict[str, Any]] = field(default_factory=list)  # what repositories were made with
    messages: list[str] = field(default_factory=list)  # of commits
    refused_uploads: int = 0  # how many of the next large files get status 403

    def add(self, name: str, files: dict[str, bytes], **more: Any) -> Repository:
        self.repositories[name] = Repository(**more)
        self.repositories[name].commit(files)
        return self.repositories[name]

    def downloads(self) -> list[str]:
        """Names of the files whose content was asked for."""
        return [path.rpartition("/")[2] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]


def git_blob(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serve(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub that the library in this process uses, with `cache` as the library's cache, and no token."""
    from huggingface_hub import constants

    hub = HubServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "no-token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._take()

    def do_PUT(self) -> None:
        self._take()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `requests`."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        self.hub.requests.append(
            (self.command, unquote(parts.path), {name.lower(): value for name, value in self.headers.items()})
        )
        time.sleep(self.hub.delay_s)
        if self.hub.status:
            return self._send(self.hub.status, b"{}")
        if content := re.fullmatch(r"/content/([0-9a-f]{40})/([^/]+/[^/]+)/(.+)", unquote(parts.path)):
            return self._file(self.hub.repositories[content[2]].commits[content[1]][content[3]], content[3])
        found = re.fullmatch(r"/(api/models/)?([^/]+/[^/]+)(?:/(revision|tree|resolve)/([^/]+)(?:/(.+))?)?", parts.path)
        repository = self.hub.repositories.get(found[2]) if found else None
        if found is None or repository is None:
            return self._error(401, "RepoNotFound")  # as hubs answer those who have no token
        if repository.token and self.headers.get("Authorization") != f"Bearer {repository.token}":
            return self._error(403, "GatedRepo") if repository.gated else self._error(401, "RepoNotFound")
        revision = unquote(found[4] or "main")
        commit = revision if revision in repository.commits else repository.branches.get(revision)
        if commit is None:
            return self._error(404, "RevisionNotFound")
        files = repository.commits[commit]
        if found[3] == "resolve":
            return self._resolve(found[2], commit, files, unquote(found[5]))
        if found[3] == "tree":
            return self._send(200, json.dumps([_tree_row(name, files[name]) for name in sorted(files)]).encode())
        blobs = "blobs" in parse_qs(parts.query)
        siblings = [_sibling(name, files[name], blobs) for name in sorted(files)]
        self._send(200, json.dumps({"id": found[2], "sha": commit, "siblings": siblings}).encode())

    def _take(self) -> None:
        """A step of an upload."""
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, {name.lower(): value for name, value in self.headers.items()}))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if hub.status:
            return self._send(hub.status, b"{}")
        if put := re.fullmatch(r"/upload/([0-9a-f]{64})", path):
            hub.refused_uploads -= 1
            if hub.refused_uploads >= 0:
                return self._send(403, b"{}")
            assert sha256(body) == put[1]
            hub.uploaded[put[1]] = body
            return self._send(200, b"")
        if path == "/api/validate-yaml":
            return self._send(200, b'{"errors": [], "warnings": []}')
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        found = re.fullmatch(
            r"/(?:api/models/)?([^/]+/[^/]+?)(?:\.git)?/(info/lfs/objects/batch|preupload/(.+)|commit/(.+)|branch/(.+))",
            path,
        )
        assert found, path
        if found[5]:
            repository = hub.repositories[found[1]]
            repository.branches.setdefault(found[5], repository.branches["main"])
            return self._send(201, b"{}")
        if found[3]:
            return self._reply({"files": [
                {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(LARGE) else "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]})  # fmt: skip
        if found[4]:
            return self._commit(found[1], found[4], [json.loads(line) for line in body.splitlines()])
        objects = json.loads(body)["objects"]
        new = [one for one in objects if one["oid"] not in hub.uploaded]
        actions = {one["oid"]: {"actions": {"upload": {"href": f"{hub.url}/upload/{one['oid']}"}}} for one in new}
        self._reply({"transfer": "basic", "objects": [{**one, **actions.get(one["oid"], {})} for one in objects]})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        if name in self.hub.repositories:
            return self._send(409, json.dumps({"url": f"{self.hub.url}/{name}"}).encode())
        self.hub.made.append(wanted)
        self.hub.add(name, {".gitattributes": b""})
        self._reply({"url": f"{self.hub.url}/{name}"})

    def _commit(self, name: str, branch: str, rows: list[dict[str, Any]]) -> None:
        repository = self.hub.repositories[name]
        files = dict(repository.commits[repository.branches[branch]])
        for kind, value in ((row["key"], row["value"]) for row in rows):
            if kind == "header":
                self.hub.messages.append(value["summary"])
            elif kind == "deletedFile":
                del files[value["path"]]
            else:
                files[value["path"]] = (
                    self.hub.uploaded[value["oid"]] if kind == "lfsFile" else b64decode(value["content"])
                )
        sha = repository.commit(files, branch)
        self._reply({"commitUrl": f"{self.hub.url}/{name}/commit/{sha}", "commitOid": sha, "success": True})

    def _reply(self, document: dict[str, Any]) -> None:
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, commit: str, files: dict[str, bytes], path: str) -> None:
        if path not in files:
            return self._error(404, "EntryNotFound", commit)
        if not path.endswith(LARGE):
            return self._file(files[path], path, {"X-Repo-Commit": commit, "ETag": f'"{git_blob(files[path])}"'})
        self._send(302, b"", {
            "X-Repo-Commit": commit, "X-Linked-Etag": f'"{sha256(files[path])}"', "X-Linked-Size": str(len(files[path])),
            "Location": f"{self.hub.url.replace('127.0.0.1', 'localhost')}/content/{commit}/{name}/{path}",
        })  # fmt: skip

    def _file(self, content: bytes, path: str, headers: dict[str, str] | None = None) -> None:
        content = self.hub.replaced.get(path, content)
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and not self.hub.ignores_range else 0
        status = 206 if start else 200
        if start:
            headers = (headers or {}) | {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        cuts = self.hub.cuts.get(path, []) if self.command == "GET" else []
        self._send(status, content[start:], headers, cuts.pop(0) if cuts else None)

    def _error(self, status: int, code: str, commit: str = "") -> None:
        self._send(status, b"{}", {"X-Error-Code": code, **({"X-Repo-Commit": commit} if commit else {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.close_connection = True


def _sibling(name: str, content: bytes, blobs: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"rfilename": name}
    if blobs:
        row |= {"size": len(content), "blobId": git_blob(content)}
        if name.endswith(LARGE):
            row["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
    return row


def _tree_row(name: str, content: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": git_blob(content)}
    if name.endswith(LARGE):
        row["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
    return row
