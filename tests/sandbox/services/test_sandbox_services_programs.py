"""The object store and the log service, as programs on loopback: what they take, list, find and refuse, also after a restart."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.sandbox.services import programs

FOLDER = Path(programs.__file__).parent


class Running:
    """One program on a free port."""

    def __init__(self, name: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        port = self.url.rsplit(":", 1)[1]
        self._process = subprocess.Popen([sys.executable, "-S", str(FOLDER / f"{name}.py"), port, str(folder)])
        for _ in range(500):
            try:
                self.ask("/-/health")
                return
            except urllib.error.URLError:
                time.sleep(0.01)
        raise AssertionError(f"{name} does not serve")

    def ask(self, path: str, data: bytes | None = None, method: str | None = None) -> tuple[bytes, dict[str, str]]:
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, data=data, method=method), timeout=10
        ) as got:
            return got.read(), dict(got.headers)

    def refusal(self, path: str, data: bytes | None = None, method: str | None = None) -> int:
        with pytest.raises(urllib.error.HTTPError) as refused:
            self.ask(path, data, method)
        return refused.value.code

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Running]:
    running = Running("object_store", tmp_path / "store")
    yield running
    running.stop()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Running]:
    running = Running("log_service", tmp_path / "logs")
    yield running
    running.stop()


def keys(answer: bytes) -> tuple[list[str], list[str], str]:
    """(keys, common prefixes, continuation token) of a listing."""
    tree = ElementTree.fromstring(answer)
    space = {"s": tree.tag.split("}")[0].strip("{")}
    found = [node.text or "" for node in tree.findall("s:Contents/s:Key", space)]
    prefixes = [node.text or "" for node in tree.findall("s:CommonPrefixes/s:Prefix", space)]
    return found, prefixes, tree.findtext("s:NextContinuationToken", "", space)


def test_an_object_comes_back_as_it_went_in(store: Running) -> None:
    store.ask("/b", method="PUT")
    names = ["a", "d/e.txt", "../../up", "ünï", "x" * 900]
    for name in names:
        path = "/b/" + urllib.request.pathname2url(name)
        _, headers = store.ask(path, name.encode() * 3, "PUT")
        assert store.ask(path)[0] == name.encode() * 3
        assert store.ask(path)[1]["ETag"] == headers["ETag"]
    assert keys(store.ask("/b?list-type=2")[0])[0] == sorted(names)


def test_a_listing_has_prefixes_and_goes_on_where_it_stopped(store: Running) -> None:
    store.ask("/b", method="PUT")
    for name in ("a/1", "a/2", "b", "c/1", "d"):
        store.ask(f"/b/{name}", b"x", "PUT")
    assert keys(store.ask("/b?list-type=2&delimiter=/")[0])[:2] == (["b", "d"], ["a/", "c/"])
    seen: list[str] = []
    token = ""
    for _ in range(5):
        found, _, token = keys(store.ask(f"/b?list-type=2&max-keys=2&continuation-token={token}")[0])
        seen += found
        if not token:
            break
    assert seen == ["a/1", "a/2", "b", "c/1", "d"]


def test_what_is_not_there_is_refused_by_its_code(store: Running) -> None:
    assert store.refusal("/none/x") == 404
    assert store.refusal("/none/x", b"x", "PUT") == 404
    store.ask("/b", method="PUT")
    assert store.refusal("/b/x") == 404
    store.ask("/b/x", b"x", "PUT")
    assert store.refusal("/b", method="DELETE") == 409
    store.ask("/b/x", method="DELETE")
    store.ask("/b", method="DELETE")
    assert b"<Name>" not in store.ask("/")[0]


def test_records_are_found_by_text_field_and_time(logs: Running) -> None:
    lines = [{"time": n, "level": "error" if n % 2 else "info", "message": f"event {n}"} for n in range(10)]
    logs.ask("/ingest", "\n".join(map(json.dumps, lines)).encode() + b"\nno json at all\n")
    times = lambda query: [record["time"] for record in json.loads(logs.ask(f"/query?{query}")[0])["records"]]
    assert times("level=error&since=4") == [5, 7, 9]
    assert times("text=event%203") == [3]
    assert times("until=8&limit=2") == [7, 8]
    assert len(times("text=no%20json")) == 1
    assert json.loads(logs.ask("/fields")[0])["level"] == {"info": 5, "error": 5}
    assert logs.refusal("/query?since=yesterday") == 400


def test_both_keep_what_they_have_over_a_restart(tmp_path: Path) -> None:
    first = Running("log_service", tmp_path / "l")
    first.ask("/ingest", b'{"message": "kept", "time": 1}')
    first.stop()
    with open(tmp_path / "l" / "log.jsonl", "a") as file:
        file.write('{"half')  # what a kill in the middle of a write leaves
    again = Running("log_service", tmp_path / "l")
    again.ask("/ingest", b'{"message": "kept too", "time": 2}')
    again.stop()
    third = Running("log_service", tmp_path / "l")
    assert [record["time"] for record in json.loads(third.ask("/query?text=kept")[0])["records"]] == [1.0, 2.0]
    third.stop()
