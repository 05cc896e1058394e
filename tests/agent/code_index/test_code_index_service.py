"""The service: many clients, each with its own overlay; nothing a client does harms another."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from etude.agent.code_index import service as services
from etude.agent.code_index import store
from etude.agent.code_index.base import Base
from etude.agent.code_index.bases import Bases
from etude.agent.code_index.client import IndexClient
from etude.agent.code_index.errors import IndexRefused, ServiceLost
from etude.agent.code_index.service import Service

FILES = {
    "a.py": "def parse_config(path):\n    return path\n",
    "pkg/b.py": "class Store:\n    def size(self):\n        return 1\n",
}


class Served:
    """A service in a thread; `restart` ends it, with the lines of its clients, and starts it again."""

    def __init__(self, lab) -> None:
        self.lab, self.path = lab, lab.home / "index.sock"
        self._lines: list[socket.socket] = []
        self.start()

    def start(self) -> None:
        self.service = Service(self.path, [self.lab.index()])
        self._thread = threading.Thread(target=self.service.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.service.shutdown()
        self.service.server_close()
        self._thread.join()

    def ask(self, *lines: bytes) -> list[dict]:
        """Answers to raw lines on one connection."""
        with socket.socket(socket.AF_UNIX) as line, line.makefile("rb") as answers:
            line.settimeout(20)
            line.connect(str(self.path))
            line.sendall(b"".join(text + b"\n" for text in lines))
            return [json.loads(answers.readline()) for _ in lines]


@pytest.fixture
def served(lab) -> Iterator[Served]:
    lab.write(FILES)
    lab.built()
    running = Served(lab)
    yield running
    running.stop()


async def test_a_client_is_answered_as_the_index_in_process(served: Served) -> None:
    client = IndexClient(served.path)
    index = served.lab.index()
    assert await client.search("parse config", limit=3) == index.search("parse config", limit=3)
    assert await client.search("size", under="pkg", language="python") == index.search(
        "size", under="pkg", language="python"
    )
    assert (await client.stats())["files"] == 2
    await client.close()


async def test_many_sessions_at_once_each_see_their_own_edits(served: Served) -> None:
    async def session(number: int) -> None:
        client = IndexClient(served.path)
        await client.put({"a.py": f"def frobnicate_{number}():\n    return 1\n", "bin": b"\xff\0", "pkg/b.py": None})
        for _ in range(3):
            hits = await client.search(f"frobnicate_{number} parse_config Store")
            assert [(hit.path, hit.symbol) for hit in hits] == [("a.py", f"frobnicate_{number}")]
        await client.close()

    await asyncio.gather(*(session(number) for number in range(60)))
    assert [
        hit["path"] for hit in served.ask(b'{"method": "search", "params": {"query": "parse_config"}}')[0]["result"]
    ] == ["a.py"]


async def test_refusals_come_through_as_themselves(served: Served) -> None:
    client = IndexClient(served.path)
    with pytest.raises(IndexRefused, match="no word"):
        await client.search("…")
    with pytest.raises(IndexRefused, match="nowhere"):
        await client.search("x", under="nowhere")
    assert await client.search("parse_config")
    await client.close()


async def test_a_restarted_service_is_shown_the_sessions_edits_again(served: Served) -> None:
    client = IndexClient(served.path)
    await client.put({"a.py": "def frobnicate():\n    return 1\n"})
    before = await client.search("frobnicate")
    served.stop()
    await client.close()  # as the kernel does for the lines of a process that ends
    served.start()
    assert await client.search("frobnicate") == before
    await client.close()


async def test_a_session_never_sees_two_bases(served: Served) -> None:
    client = IndexClient(served.path)
    await client.search("parse_config")
    served.lab.write({"c.py": "x = 1\n"})
    served.lab.built()
    assert not await client.search("c x", language="rust")  # the open line keeps its view
    await client.close()
    with pytest.raises(ServiceLost, match="generation 1 to 2"):
        await client.search("parse_config")


async def test_an_update_is_seen_by_sessions_that_begin_later(served: Served) -> None:
    first, second = IndexClient(served.path), IndexClient(served.path)
    await first.search("parse_config")
    served.lab.write({"c.py": "def frobnicate():\n    return 1\n"})
    assert (await first.update())["indexed"] == 1
    assert not await first.search("frobnicate") and await second.search("frobnicate")
    await first.close()
    await second.close()


async def test_a_full_disk_is_the_services_fault_not_the_askers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "write_checked", full)
    client = IndexClient(served.path)
    served.lab.write({"c.py": "x = 1\n"})
    with pytest.raises(ServiceLost, match="No space left"):
        await client.update()
    assert (await client.search("parse_config"))[0].path == "a.py"
    await client.close()


async def test_without_a_service_the_client_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ServiceLost, match="etude index serve"):
        await IndexClient(tmp_path / "none.sock").search("x")


async def test_a_service_that_hangs_is_given_up_and_its_late_answer_meets_no_other_question(
    served: Served, monkeypatch
) -> None:
    free, answer = threading.Event(), services.Connection.answer

    def late(connection, line: bytes) -> dict:
        if b"slow" in line:
            free.wait(20)
        return answer(connection, line)

    monkeypatch.setattr(services.Connection, "answer", late)
    client = IndexClient(served.path, timeout_s=0.5)
    with pytest.raises(ServiceLost, match="no answer to search within 0.5 s"):
        await client.search("slow")
    free.set()
    assert (await client.search("parse_config"))[0].path == "a.py"
    await client.close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"method": 5}',
        b'{"method": "destroy"}',
        b'{"method": "search"}',
        b'{"method": "search", "params": {"query": 5}}',
        b'{"method": "search", "params": {"query": "x", "limit": "many"}}',
        b'{"method": "search", "params": {"query": "x", "colour": 1}}',
        b'{"method": "put", "params": {"files": {"a.py": 5}}}',
        b'{"method": "put", "params": {"base64": {"a.py": "?"}}}',
        b'{"method": "open", "params": {"root": "/nowhere"}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_request_that_is_none_is_refused_and_the_line_goes_on(served: Served, line: bytes) -> None:
    refused, answered = served.ask(line, b'{"id": 7, "method": "search", "params": {"query": "parse_config"}}')
    assert refused["error"]["type"] == "IndexRefused" and refused["error"]["message"]
    assert answered["id"] == 7 and answered["result"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["open", "search", "put", "stats", "x"]),
    params=st.dictionaries(
        st.sampled_from(["query", "limit", "under", "language", "files", "base64", "root"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda s: st.dictionaries(st.text(max_size=5), s, max_size=2),
            max_leaves=4,
        ),
        max_size=3,
    ),
)
@example(method="put", params={"base64": {"a.py": "\x80"}})
def test_whatever_is_asked_is_answered_with_a_result_or_a_typed_error(
    served: Served, method: str, params: dict
) -> None:
    (reply,) = served.ask(json.dumps({"id": 1, "method": method, "params": params}).encode())
    assert reply["id"] in (1, None) and (("result" in reply) != ("error" in reply))


def test_a_line_without_end_is_refused_and_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "LONGEST_LINE_BYTES", 1000)
    (refused,) = served.ask(b"x" * 5000)
    assert "at most" in refused["error"]["message"]


def test_only_the_owner_may_connect_and_the_socket_goes_at_the_end(lab) -> None:
    lab.write(FILES)
    lab.built()
    running = Served(lab)
    mode = running.path.stat().st_mode
    running.stop()
    assert mode & 0o077 == 0 and not running.path.exists()


def test_a_dead_services_socket_is_replaced_and_a_living_ones_is_not(served: Served) -> None:
    with pytest.raises(IndexRefused, match="served already"):
        Service(served.path, [])
    dead = served.lab.home / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    Service(dead, []).server_close()
    with pytest.raises(IndexRefused, match="no socket"):
        Service(served.lab.root / "a.py", [])
    with pytest.raises(IndexRefused, match="107"):
        Service(served.lab.home / ("x" * 120), [])


def test_a_service_of_several_folders_asks_which(lab, tmp_path_factory) -> None:
    lab.write(FILES)
    lab.built()
    other = type(lab)(tmp_path_factory.mktemp("other"))
    other.write({"b.py": "def other():\n    return 1\n"})
    other.built()
    with Service(lab.home / "s.sock", [lab.index(), other.index()]) as service:
        connection = services.Connection(service.indexes, service.bases, service.busy)
        assert str(other.root) in connection.answer(b'{"method": "stats"}')["error"]["message"]
        opened = connection.answer(json.dumps({"method": "open", "params": {"root": str(other.root)}}).encode())
        assert opened["result"]["root"] == str(other.root)
        assert connection.answer(b'{"method": "search", "params": {"query": "other"}}')["result"][0]["path"] == "b.py"


async def test_a_base_is_given_once_and_opened_by_its_digest_after(tmp_path: Path) -> None:
    base = Base({"a.py": b"def total():\n    return 1\n", "b.bin": b"\xff\0"})
    with Service(tmp_path / "s.sock", [], bases=Bases(tmp_path / "bases")) as service:
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
        first, second = IndexClient(service.path, base), IndexClient(service.path, base)
        await first.put({"a.py": None})
        assert not await first.search("total")
        await second.open()
        assert [hit.path for hit in await second.search("total")] == ["a.py"]
        await first.close()
        await second.close()
        service.shutdown()
    with pytest.raises(ServiceLost, match="etude index serve"):
        await second.open()


def test_a_service_of_folders_has_no_bases_and_one_of_bases_no_folder(lab) -> None:
    busy = threading.Semaphore()
    of_folders, of_bases = (services.Connection({}, bases, busy) for bases in (None, Bases(lab.home / "bases")))
    report = of_folders.answer(b'{"method": "open", "params": {"base": "00"}}')["error"]
    assert report["type"] == "IndexRefused" and "keeps no bases" in report["message"]
    assert of_bases.answer(b'{"method": "open", "params": {"base": "00"}}')["error"]["type"] == "NotBuilt"
    assert (
        "none is served here" in of_bases.answer(b'{"method": "search", "params": {"query": "x"}}')["error"]["message"]
    )
