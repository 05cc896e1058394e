"""Embeddings in addition to words: computed once a chunk, fused by rank, over any OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from etude.agent.code_index.embedder import KEY_VARIABLE, EndpointEmbedder
from etude.agent.code_index.errors import EmbedderFailed
from etude.agent.code_index.words import terms

# What a model of meaning would know.
MEANINGS = [{"car", "automobil", "vehicl", "driv"}, {"fish", "salmon", "swim"}, {"money", "pay", "invoic", "bill"}]
FILES = {
    "a.py": "def vehicle_speed(v):\n    return v\n",
    "b.py": "def salmon_weight(v):\n    return v\n",
    "c.py": "def invoice_total(v):\n    return v\n",
}


def meaning(text: str) -> list[float]:
    found = set(terms(text))
    return [float(len(found & group)) for group in MEANINGS] + [0.1]


class Known:
    """An embedder that knows MEANINGS and counts what it is asked."""

    name = "known"

    def __init__(self) -> None:
        self.documents: list[str] = []
        self.broken = False

    def embed(self, texts: Sequence[str], role: str) -> np.ndarray:
        if self.broken:
            raise EmbedderFailed("it is down")
        self.documents += texts if role == "document" else []
        rows = np.array([meaning(text) for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_question_without_a_common_word_is_answered_by_meaning(lab) -> None:
    lab.write(FILES)
    index = lab.index(embedder=Known())
    index.update(workers=1)
    assert not lab.index().search("automobile driving")
    assert index.search("automobile driving")[0].path == "a.py"
    assert index.search("swimming", language="python", under="b.py")[0].path == "b.py"


def test_words_and_meaning_together_beat_either(lab) -> None:
    lab.write(FILES | {"d.py": "def speed_test(v):\n    return v\n"})
    index = lab.index(embedder=Known())
    index.update(workers=1)
    assert index.search("speed of an automobile")[0].path == "a.py"


def test_only_new_chunks_are_embedded_also_after_merging_and_restarts(lab) -> None:
    lab.write(FILES)
    known = Known()
    lab.index(embedder=known).update(workers=1)
    assert len(known.documents) == 3
    for n in range(12):
        lab.write({f"n{n}.py": f"def number_{n}(v):\n    return v\n"})
        lab.index(embedder=known).update(workers=1)
    index = lab.index(embedder=known)
    index.update(workers=1)
    assert len(known.documents) == 15 and len(set(known.documents)) == 15
    assert index.stats()["segments"] < 13  # they were merged, and their vectors with them
    assert index.search("automobile")[0].path == "a.py"


def test_torn_vectors_are_computed_again(lab) -> None:
    lab.write(FILES)
    known = Known()
    lab.index(embedder=known).update(workers=1)
    (file,) = (lab.home / "store").glob("*.vec")
    file.write_bytes(file.read_bytes()[:-3])
    index = lab.index(embedder=known)
    index.update(workers=1)
    assert len(known.documents) == 6 and index.search("automobile")[0].path == "a.py"


def test_an_overlay_embeds_its_own_files_once(lab) -> None:
    lab.write(FILES)
    known = Known()
    index = lab.index(embedder=known)
    index.update(workers=1)
    overlay = index.overlay()
    overlay.put({"b.py": "def drive_fast(v):\n    return v\n", "a.py": None})
    assert [overlay.search("automobile")[0].path for _ in range(3)] == ["b.py"] * 3
    assert len(known.documents) == 4
    assert index.search("automobile")[0].path == "a.py"


def test_an_embedder_that_is_down_is_reported_not_passed_over(lab) -> None:
    lab.write(FILES)
    known = Known()
    index = lab.index(embedder=known)
    index.update(workers=1)
    known.broken = True
    with pytest.raises(EmbedderFailed, match="down"):
        index.search("automobile")


class Endpoint(BaseHTTPRequestHandler):
    """Answers as `server.answer` says, and keeps what it was asked."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))  # type: ignore[attr-defined]
        status, reply = self.server.answer(body)  # type: ignore[attr-defined]
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def endpoint() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked = []  # type: ignore[attr-defined]
    server.answer = lambda body: (  # type: ignore[attr-defined]
        200,
        {"data": [{"index": i, "embedding": meaning(text)} for i, text in reversed(list(enumerate(body["input"])))]},
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url(endpoint: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{endpoint.server_address[1]}/v1"


def test_an_endpoint_serves_as_embedder(lab, endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    lab.write(FILES)
    index = lab.index(embedder=EndpointEmbedder(url(endpoint), "small", query_prefix="find: "))
    index.update(workers=1)
    assert index.search("automobile")[0].path == "a.py"
    paths, keys, bodies = zip(*endpoint.asked, strict=True)
    assert set(paths) == {"/v1/embeddings"} and set(keys) == {"Bearer secret"}
    assert bodies[-1] == {"model": "small", "input": ["find: automobile"]}


@pytest.mark.parametrize(
    ("status", "reply", "said", "asked"),
    [
        (401, {"error": "bad key"}, "status 401.*bad key.*ETUDE_EMBEDDINGS_KEY", 1),
        (503, {}, "status 503", 3),
        (200, {"data": []}, "answered", 1),
        (200, {"data": [{"index": 0}]}, "no embeddings", 1),
        (200, {"data": [{"index": 0, "embedding": [1.0, None]}]}, "embeddings|answered", 1),
        (200, [], "no embeddings", 1),
    ],
)
def test_an_endpoint_that_answers_otherwise_is_named(
    endpoint, status: int, reply: object, said: str, asked: int
) -> None:
    endpoint.answer = lambda body: (status, reply)
    with pytest.raises(EmbedderFailed, match=said):
        EndpointEmbedder(url(endpoint), "small").embed(["x"], "query")
    assert len(endpoint.asked) == asked


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with pytest.raises(EmbedderFailed, match="127.0.0.1:1/v1.*see that it runs"):
        EndpointEmbedder("http://127.0.0.1:1/v1", "small").embed(["x"], "query")


def test_a_proxy_that_can_not_be_used_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://10.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(EmbedderFailed, match="ALL_PROXY names no proxy"):
        EndpointEmbedder("http://10.0.0.2/v1", "m").embed(["x"], "query")
