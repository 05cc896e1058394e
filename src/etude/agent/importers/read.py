"""Tells whose log a file is by its first lines, and reads it as a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etude.agent.importers import atif, claude_code, codex, openhands
from etude.agent.importers.draft import ForeignError, SessionDraft
from etude.core.trace.session import Session

AGENTS = (claude_code.NAME, codex.NAME, openhands.NAME, atif.NAME)
# A log is held whole: a long day's session is some 50 MB.
MAX_BYTES = 1 << 30


def read_foreign(path: Path, agent: str | None = None) -> Session:
    """The session of another agent's log. `agent` is one of AGENTS; None: recognised by the log's keys. Raises ForeignError, OSError."""
    if agent is not None and agent not in AGENTS:
        raise ForeignError(f"no agent {agent!r}; there are {', '.join(AGENTS)}")
    found, torn = _documents(path)
    agent = agent or _agent(found, path)
    if agent == atif.NAME:
        return atif.read(found[0][1], str(path)).session()
    readers: dict[str, Any] = {
        claude_code.NAME: claude_code.read,
        codex.NAME: codex.read,
        openhands.NAME: openhands.read,
    }
    draft: SessionDraft = readers[agent](found)
    draft.session_id = draft.session_id or (path.parent.name if path.name == "events" else path.stem)
    if torn:
        draft.drop("torn last line")
    return draft.session()


def _documents(path: Path) -> tuple[list[tuple[str, dict[str, Any]]], bool]:
    """The log's JSON objects with their places: of a folder's event files, a JSON document, or JSON lines; and whether the
    last line was torn, as that of a log being written may be."""
    if path.is_dir():
        files = sorted(path.rglob("event-*.json"))
        if not files:
            raise ForeignError(f"{path} holds no event-*.json: give the log's file, or OpenHands' folder of events")
        return [(str(file), _object(file.read_bytes(), str(file))) for file in files], False
    if path.stat().st_size > MAX_BYTES:
        raise ForeignError(
            f"{path} has {path.stat().st_size >> 20} MiB; no log of an agent is larger than {MAX_BYTES >> 20}"
        )
    data = path.read_bytes()
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise ForeignError(f"{path} is empty")
    if data.lstrip()[:1] == b"[":
        rows = _parse(data, str(path))
        return [(f"{path}, item {i}", _require(row, f"{path}, item {i}")) for i, row in enumerate(rows, 1)], False
    if len(lines) == 1 or not _is_json(lines[0][1]):
        return [(str(path), _object(data, str(path)))], False
    torn = not data.endswith(b"\n") and not _is_json(lines[-1][1])
    whole = lines[:-1] if torn else lines
    return [(f"{path}:{number}", _object(line, f"{path}:{number}")) for number, line in whole], torn


def _agent(found: list[tuple[str, dict[str, Any]]], path: Path) -> str:
    first = found[0][1]
    if str(first.get("schema_version", "")).startswith("ATIF-"):
        return atif.NAME
    if "payload" in first and "type" in first:
        return codex.NAME
    if any("kind" in row and "source" in row for _, row in found[:1]):
        return openhands.NAME
    if first.get("type") in claude_code.TYPES or "sessionId" in first:
        return claude_code.NAME
    keys = ", ".join(sorted(first)[:8])
    raise ForeignError(
        f"{path}: the agent that wrote this log can't be recognized by its keys ({keys}); name it with --agent, one of {', '.join(AGENTS)}"
    )


def _object(data: bytes, place: str) -> dict[str, Any]:
    return _require(_parse(data, place), place)


def _require(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ForeignError(f"{place}: expected a JSON object, found {type(value).__name__}")
    return value


def _parse(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ForeignError(f"{place} is not JSON: {data[:60]!r}") from error


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
