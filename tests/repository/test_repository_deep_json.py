"""JSON that is nested without end is damaged JSON: a reader that expects the one expects the other."""

from __future__ import annotations

import ast
import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import etude
from etude.agent.harness.lint.finding import LinterError, _json
from etude.agent.importers.draft import ForeignError
from etude.agent.importers.read import read_foreign
from etude.agent.metrics.of_session import _rows
from etude.core.events.finite import loads, read_file
from etude.core.redact.redaction import redact
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import parse_line
from etude.evaluate.bench.runs.conditions import ConditionsDiffer
from etude.evaluate.bench.runs.conditions import read as read_conditions
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.report.rows.lines import _object
from etude.learn.weights.errors import CorruptShard
from etude.learn.weights.store import WeightManifest
from etude.sandbox.layers.snapshot import Snapshot
from etude.tasks.errors import TaskError
from etude.tasks.generate.install.agents.judge import _verdict
from etude.tasks.generate.prompts.writer import _parsed
from etude.tasks.store.folder import TaskFolder

SOURCE = Path(etude.__file__).parent
DEEP = ["[" * 100_000, '{"a":' * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000]


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load")


def _caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"Exception"}
    return {ast.unparse(one) for one in (handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])}


def _guarded(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """Line and exceptions of each `try` around a reading of JSON that expects damage."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_reads(inner) for step in node.body for inner in ast.walk(step)):
            caught = set().union(*map(_caught, node.handlers)) if node.handlers else set()
            if caught & {"ValueError", "json.JSONDecodeError"}:
                yield node.lineno, caught


def test_who_expects_damaged_json_expects_json_that_is_too_deep() -> None:
    """`json.loads` raises RecursionError for it, which is no ValueError."""
    lacking = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        if "json.load" in (text := path.read_text(encoding="utf-8"))
        for line, caught in _guarded(ast.parse(text))
        if not caught & {"RecursionError", "Exception", "BaseException"}
    ]
    assert lacking == []


READERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "a line of a session": (lambda text: parse_line(text.encode(), "a:1"), SessionError),
    "a document of a report": (loads, ValueError),
    "a manifest of weights": (WeightManifest.from_json, CorruptShard),
    "a snapshot": (lambda text: Snapshot.parse(text.encode()), ValueError),
    "what a linter prints": (_json, LinterError),
    "a list of to-dos of a model": (_rows, None),
    "prompts of a model": (_parsed, {}),
    "a verdict of a model": (_verdict, None),
    "a row of a run": (lambda text: _object(text.encode()), None),
}


@pytest.mark.parametrize("text", DEEP, ids=["lists", "open", "closed"])
@pytest.mark.parametrize("reader", READERS)
def test_deep_json_is_an_error_of_its_reader_or_nothing(reader: str, text: str) -> None:
    read, answer = READERS[reader]
    if isinstance(answer, type) and issubclass(answer, Exception):
        with pytest.raises(answer):
            read(text)
    else:
        assert read(text) == answer


@pytest.mark.parametrize("text", DEEP, ids=["lists", "open", "closed"])
def test_files_of_others_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.jsonl").write_text(text + "\n")
    with pytest.raises(ForeignError, match="log.jsonl"):
        read_foreign(tmp_path / "log.jsonl")
    (tmp_path / "stages.json").write_text(text)
    with pytest.raises(ValueError, match="stages.json is no JSON .*nested too deeply"):
        read_file(tmp_path / "stages.json")
    (tmp_path / "index.jsonl").write_text(text + "\n")
    with pytest.raises(TaskError, match="line 1 is no row of a task"):
        TaskFolder(tmp_path)
    (tmp_path / "conditions.json").write_text(text)
    with pytest.raises(ConditionsDiffer, match="conditions.json is no JSON"):
        read_conditions(RunFolder(tmp_path))


def test_a_text_of_a_model_that_looks_like_a_token_ends_no_redaction() -> None:
    head = base64.urlsafe_b64encode(('{"a":' * 20_000).encode()).decode().rstrip("=")
    text, _ = redact(f"see {head}.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U")
    assert text.startswith("see ")
