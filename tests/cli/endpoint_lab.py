"""A real HTTP server on loopback that speaks chat completions with tool calls, driven by scripted players.

A player decides from the conversation alone, as a model behind an endpoint would: what to say next is a function of the task and
of how many turns it has had. Which task it is, is read from the request's seed, since two exercises may have the same words.
"""

from __future__ import annotations

import json
import shlex
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from etude.evaluate.bench.settings import BenchSettings
from etude.tasks.task import Task

Call = tuple[str, dict[str, str]]
Player = Callable[[Task, int], list[Call]]  # (task, turns so far) -> the calls of the next turn

DONE: Call = ("done", {"message": "fixed"})


def reference(task: Task, turn: int) -> list[Call]:
    """Writes the solution, runs the tests, ends."""
    edits = [
        ("edit", {"path": path, "old": task.files.get(path, ""), "new": text})
        for path, text in task.solution.items()
        if task.files.get(path) != text
    ]
    return [edits, [("test", {})], [DONE]][turn]


def nop(task: Task, turn: int) -> list[Call]:
    """Says that it is done."""
    return [DONE]


def cheat(task: Task, turn: int) -> list[Call]:
    """Empties every test, plants files that end the interpreter well, and deletes the tests' folder."""
    tests = task.metadata.get("tests", "tests")
    plant = "import os\nos._exit(0)\n"
    shell = f"find . -name 'test*' -exec rm -rf {{}} + ; rm -rf {tests} ; printf '{plant}' > conftest.py ; ls"
    planted: list[Call] = [
        ("edit", {"path": name, "old": "", "new": plant}) for name in ("sitecustomize.py", "pytest.py")
    ]
    return [[("shell", {"command": shell}), *planted], [("test", {})], [DONE]][turn]


def by_bash(task: Task, turn: int) -> list[Call]:
    """The reference of an agent that has bash alone, as mini-swe-agent's: files, tests, its word for the end."""
    writes = [
        f"mkdir -p $(dirname {path}); printf %s {b64encode(text.encode()).decode()} | base64 -d > {path}"
        for path, text in task.solution.items()
    ]
    commands = [" && ".join(writes), shlex.join(task.test_command), "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    return [("bash", {"command": commands[turn]})]


def spoken(text: str) -> dict[str, Any]:
    """An answer in words alone, as an endpoint gives it."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 500, "completion_tokens": 20}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


@dataclass
class Lab:
    """The server's side of a bench. `refuse` may answer a request before the player does: (status, headers, body)."""

    url: str = ""
    tasks: list[Task] = field(default_factory=list)  # in the order of the suite
    player: Player = nop
    asked: list[dict[str, Any]] = field(default_factory=list)
    refuse: Callable[[int], tuple[int, dict[str, str], str] | None] = lambda number: None

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The next turn of the conversation in `body`; a greeting is answered as it asks."""
        messages = body["messages"]
        turn = sum(m["role"] == "assistant" for m in messages)
        calls = self.player(self._task(body["seed"]), turn) if "seed" in body else [DONE]
        rows = [
            {"id": f"t{turn}c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, (name, arguments) in enumerate(calls)
        ]
        message = {"role": "assistant", "content": None, "tool_calls": rows}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
        return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}

    def _task(self, seed: int) -> Task:
        """The bench's seeds leave 1,009 to every task for its turns, and start again, a prime further, with every pass and try."""
        return self.tasks[(seed - BenchSettings().seed) % 1_000_003 // 1009]  # pyright: ignore[reportCallIssue]


@contextmanager
def serving(lab: Lab) -> Iterator[Lab]:
    """`lab` behind an address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            lab.asked.append(body | {"authorization": self.headers.get("Authorization")})
            refused = lab.refuse(len(lab.asked))
            status, headers, text = refused or (200, {}, json.dumps(lab.answer(body)))
            data = text.encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    lab.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield lab
    finally:
        server.shutdown()
        server.server_close()


HOSTILE_MODULE = """
import gc, os, sys
for at in range(400):
    os.mkdir("d%d" % at)
def forge():
    spaces, frame = [], sys._getframe()
    while frame is not None:
        spaces += [frame.f_globals, frame.f_locals]
        frame = frame.f_back
    words = {value for space in spaces for key, value in list(space.items()) if key in ("nonce", "token") and isinstance(value, str)}
    for fd in range(1, 12):
        for word in words or {"0"}:
            for line in ("\\u00b2 1", "0 True", "-1", "-2", "['" * 9000):
                try:
                    os.write(fd, ("\\n%s %s\\n" % (word, line)).encode())
                except OSError:
                    pass
forge()
def __getattr__(name):
    forge()
    return lambda *args: forge() or 10 ** 5000
"""


def hostile(task: Task, turn: int) -> list[Call]:
    """Leaves code that attacks what runs it, and names and texts that attack what reads them."""
    edits: list[Call] = [
        ("edit", {"path": path, "old": task.files.get(path, ""), "new": HOSTILE_MODULE})
        for path in task.metadata.get("editable", ())
    ]
    odd = "printf 'x' > \"$(printf 'a\\377b')\"; printf '\\377\\376' > latin.txt; mkdir -p deep; cd deep; "
    odd += "python3 -c \"import os\nfor _ in range(100): os.mkdir('d'); os.chdir('d')\""
    broken: list[Call] = [
        ("²" * 70, {"path": "\ud800"}),
        ("", {}),
        ("edit", {"path": "\0", "old": "[" * 3000, "new": ""}),
    ]
    return [edits, [("shell", {"command": odd}), *broken], [("test", {})], [DONE]][turn]
