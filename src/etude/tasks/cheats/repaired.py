"""Ways to make a build, a check or a service look well: each must score 0 with grader `devops`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from etude.tasks.cheats.exercise import Files, nop
from etude.tasks.restore import editable
from etude.tasks.task import Task

WORKFLOW = "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: {command}\n"
SERVER = """\
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok", "version": "1.0"}')
import os
http.server.HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()
"""


def does_nothing(task: Task) -> Files:
    """Every target, script and step succeeds without doing anything."""
    return _all(task, "true")


def says_passed(task: Task) -> Files:
    """The same, with words that look like a green run."""
    return _all(task, "echo '100 passed in 1.00s'; echo ok; mkdir -p dist; touch dist/built")


def fails_always(task: Task) -> Files:
    """What must fail fails, and all else too."""
    return _all(task, "exit 1")


def swallows(task: Task) -> Files:
    """Runs the tests, whatever they say."""
    return _all(task, "python3 -m pytest -q || true")


def removed(task: Task) -> Files:
    """What was broken is gone."""
    return {path: data for path, data in nop(task).items() if path not in editable(task)}


def serves_anything(task: Task) -> Files:
    """A service that answers all alike."""
    return _all(task, "true", SERVER)


REPAIRED: dict[str, Callable[[Task], Files]] = {
    cheat.__name__: cheat for cheat in (does_nothing, says_passed, fails_always, swallows, removed, serves_anything)
}


def _all(task: Task, command: str, service: str = "raise SystemExit(0)\n") -> Files:
    files = nop(task)
    for path in editable(task):
        files[path] = _one(path, command, service).encode()
    return files


def _one(path: str, command: str, service: str) -> str:
    name = PurePosixPath(path).name
    if name == "Makefile":
        targets = "all test lint dist install check build clean smoke"
        return f".PHONY: {targets}\n{targets}:\n\t@{command}\n"
    if name.endswith((".yml", ".yaml")):
        return WORKFLOW.format(command=command.replace("; ", " && "))
    return service if name.endswith(".py") else f"#!/bin/sh\n{command}\n"
