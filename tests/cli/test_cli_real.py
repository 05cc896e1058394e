"""Verbs that reach into the rooms: an exported task, a replayed session, a bench of an endpoint."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from etude.cli.answer import Answer
from etude.cli.bench import EndpointError, bench
from etude.cli.session import replay, show
from etude.cli.tasks import export
from etude.events.log import EventLog
from etude.factory.exercises.source import ExerciseSource
from etude.factory.sessions import collect_sessions, session_path
from etude.recipe.read import read_recipe, resolved_toml
from etude.sandbox.pool import open_pool
from etude.tasks.harbor import read_task


class Endpoint(BaseHTTPRequestHandler):
    """Answers every turn by declaring the work done."""

    asked: list[dict] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        call = {"id": "c1", "type": "function", "function": {"name": "done", "arguments": '{"message": "fixed"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Endpoint.asked.clear()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def test_an_exported_task_reads_back_as_the_same_task(tmp_path: Path) -> None:
    answer = export(["one-bug/train/000003"], tmp_path)
    task = ExerciseSource(read_recipe([]).exercises).task("one-bug/train/000003")
    assert read_task(Path(answer.document["exported"][0])) == task


def test_an_endpoint_that_does_nothing_scores_nothing_and_is_not_asked_twice(endpoint: str, tmp_path: Path) -> None:
    def ask() -> Answer:
        return bench(["ci"], None, tmp_path, endpoint, "lazy/one", tasks=8, real=False)

    answer = ask()
    assert answer.document["bench"]["lazy/one"]["avg"] == 0.0 and "lazy/one: 0.0%" in answer.text
    asked = len(Endpoint.asked)
    assert asked == 8 and Endpoint.asked[0]["model"] == "lazy/one" and Endpoint.asked[0]["tools"]
    ask()
    assert len(Endpoint.asked) == asked


@pytest.mark.parametrize(("url", "name"), [("127.0.0.1:8000", "m"), ("http://127.0.0.1:8000/v1", None)])
def test_an_endpoint_described_badly_is_refused(tmp_path: Path, url: str, name: str | None) -> None:
    with pytest.raises(EndpointError):
        bench(["ci"], None, tmp_path, url, name)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    recipe = read_recipe([], ["sessions.count=1", "exercises.seed=5"])
    (tmp_path / "recipe.toml").write_text(resolved_toml(recipe))

    async def collect() -> None:
        pool = await open_pool(recipe.sandbox)
        try:
            source = ExerciseSource(recipe.exercises)
            folder = tmp_path / "sft"
            await collect_sessions(source, recipe.sessions, recipe.harness, None, pool, folder, EventLog.null())
        finally:
            await pool.close()

    asyncio.run(collect())
    return session_path(tmp_path / "sft", 0)


def test_a_recorded_session_replays_equal_with_the_recipe_of_its_run(recorded: Path) -> None:
    answer = replay(recorded)
    assert answer.code == 0 and answer.document["equal"], answer.document
    assert show(recorded).document["entries"]


def test_a_tampered_session_is_told_apart(recorded: Path) -> None:
    lines = recorded.read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if '"type": "tool_result"' in line or '"type":"tool_result"' in line)
    row = json.loads(lines[place])
    key = "text" if "text" in row else "output"
    row[key] = row[key] + " tampered"
    lines[place] = json.dumps(row) + "\n"
    recorded.write_text("".join(lines))
    answer = replay(recorded)
    assert answer.code == 1 and "tampered" in answer.document["difference"]
