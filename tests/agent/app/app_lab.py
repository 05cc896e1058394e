"""What tests of the app share: a small repository, and a real endpoint on loopback.

The endpoint serves chat completions, streamed where asked; a function of the conversation plays the model.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SHOP = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"
COMMAND = [sys.executable, "-c", "from etude.cli.main import main; main()"]


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


# The conversation -> the next turn: {"text": …, "thinking": …, "calls": [(name, arguments)]}
Player = Callable[[list[dict[str, Any]]], dict[str, Any]]


@dataclass
class Endpoint:
    """`key`: what the Authorization header must hold. `break_streams`: number of streams that are cut off in the middle. `hold`: a turn waits."""

    play: Player
    url: str = ""
    key: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    break_streams: int = 0
    pause_s: float = 0.0
    model: dict[str, Any] = field(default_factory=lambda: {"id": "fake"})  # as its list of models has it
    hold: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(play: Player, **options: Any) -> Iterator[Endpoint]:
    lab = Endpoint(play, **options)
    lab.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self._let_in():
                self._json(200, {"data": [lab.model]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self._let_in():
                return
            lab.asked.append(body)
            turn = lab.play(body["messages"])
            lab.hold.wait(30)
            time.sleep(lab.pause_s)
            if body.get("stream"):
                self._stream(turn, len(lab.asked))
            else:
                self._json(200, _whole(turn, len(lab.asked)))

        def _let_in(self) -> bool:
            if lab.key and self.headers.get("Authorization") != f"Bearer {lab.key}":
                self._json(401, {"error": {"message": "no such key"}})
                return False
            return True

        def _json(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, turn: dict[str, Any], number: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            chunks = list(_chunks(turn, number))
            if lab.break_streams > 0:
                lab.break_streams -= 1
                chunks = chunks[: max(2, len(chunks) // 2)]
            else:
                chunks += [{"choices": [], "usage": USAGE}]
            for chunk in chunks:
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()

        def log_message(self, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    lab.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield lab
    finally:
        lab.hold.set()
        server.shutdown()


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _calls(turn: dict[str, Any], number: int) -> list[dict[str, Any]]:
    return [
        {"id": f"c{number}-{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(turn.get("calls", []))
    ]


def _whole(turn: dict[str, Any], number: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": turn.get("text", ""), "tool_calls": _calls(turn, number) or None}
    return {"choices": [{"message": message, "finish_reason": turn.get("finish", "stop")}], "usage": USAGE}


def _chunks(turn: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    for name, key in (("reasoning_content", "thinking"), ("content", "text")):
        text = turn.get(key, "")
        for at in range(0, len(text), 7):
            yield {"choices": [{"delta": {name: text[at : at + 7]}}]}
    for i, call in enumerate(_calls(turn, number)):
        yield {"choices": [{"delta": {"tool_calls": [{"index": i, **call}]}}]}
    yield {"choices": [{"delta": {}, "finish_reason": turn.get("finish", "stop")}]}


def turns(messages: list[dict[str, Any]]) -> int:
    """How many turns the agent has taken since the last request."""
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    return sum(message["role"] == "assistant" for message in messages[last:])


def fixer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Reads, edits, runs, answers."""
    return [
        {"thinking": "Look first.", "calls": [("read_file", {"target_file": "shop.py"})]},
        {"text": "The sign is wrong.", "calls": [
            ("search_replace", {"file_path": "shop.py", "old_string": "out -= x", "new_string": "out += x"})]},
        {"calls": [("run_terminal_cmd", {"command": "python3 -c 'import shop; print(shop.total([1, 2]))'"})]},
        {"text": "Fixed the sign in shop.py."},
    ][min(turns(messages), 3)]  # fmt: skip


def parrot(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers with the given text."""
    return {"text": f"heard: {messages[-1]['content']}"}
