"""An attempt whose agent is done and which has no verdict yet, and its file: all that its grading needs, and no sandbox.

So it can be graded at once or later, by this process or by the next one: after a kill the agent is not run again. A verdict is a function of
the task and of these fields (promise 9). None of them is a score. The file:

    sha256 of all after it | zstd of: length of the head (8 bytes) | head (JSON) | token blocks | route blocks | changed files in order

The tree is held as what differs from the task's own files, whose digest is in the head: over another base it would be another tree. Bytes
that are damaged anywhere, or that belong to another task or place, are refused (`DamagedUngradedFile`): a refusal costs a rollout, a mistake
would be a wrong reward. Sessions are held as the trace has them on disk (`core/trace/block.py`), routes too, for they are trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zstandard

from etude.core.trace.block import pack_routes, pack_tokens, unpack_routes, unpack_tokens
from etude.core.trace.bounded_zstd import BadFrame, decompress
from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.group_file import LEAST_BOUND_BYTES, MOST_RATIO
from etude.core.trace.session import Session
from etude.rollout.verdicts import key_of
from etude.tasks.content import file_bytes, mode_of
from etude.tasks.task import Task

if TYPE_CHECKING:
    from etude.agent.harness.agent import AgentOutcome


@dataclass(frozen=True)
class UngradedAttempt:
    """`files`: the whole tree that the agent left; `objection`: why it could not be taken, if so. `number`: the try, from 1. `seconds` by
    phase: create, agent (of it policy, tools), export."""

    name: str
    outcome: AgentOutcome
    files: dict[str, bytes]
    objection: str
    number: int
    host: str
    began_unix_s: float
    seconds: dict[str, float]


Keep = Callable[[UngradedAttempt], None]  # called before the grading begins


def keep_nothing(ended: UngradedAttempt) -> None:
    """After a kill it is not continued."""


DIGEST = hashlib.sha256().digest_size
FORMAT = 1
_OF_ATTEMPT = ("name", "objection", "number", "host", "began_unix_s", "seconds")


class DamagedUngradedFile(ValueError):
    """Bytes that are no whole ended attempt, or not one of this task and place."""


def pack_ungraded(ended: UngradedAttempt, task: Task, tags: Mapping[str, int]) -> bytes:
    """The bytes of the file; `tags` say whose it is."""
    base = _base(task)
    changed = {path: data for path, data in ended.files.items() if base.get(path) != data}
    outcome, session = ended.outcome, ended.outcome.session
    tokens = b"".join(pack_tokens(entry.id, entry.tokens) for entry in session.entries if entry.tokens is not None)
    routes = b"".join(pack_routes(entry.id, entry.routes) for entry in session.entries if entry.routes is not None)
    head: dict[str, Any] = {
        "format": FORMAT,
        "tags": dict(tags),
        "task": task.id,
        "base": key_of(task.id, base),
        **{name: getattr(ended, name) for name in _OF_ATTEMPT},
        "outcome": [outcome.reason, outcome.message, outcome.counters, outcome.seconds],
        "header": vars(session.header),
        "entries": [[e.id, e.parent, e.type, e.at_s, e.data] for e in session.entries],
        "gone": [path for path in base if path not in ended.files],
        "changed": [[path, len(data), mode_of(data)] for path, data in changed.items()],
        "sizes": [len(tokens), len(routes)],
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    body = zstandard.compress(b"".join([len(text).to_bytes(8, "little"), text, tokens, routes, *changed.values()]), 1)
    return hashlib.sha256(body).digest() + body


def tags_of(packed: bytes) -> dict[str, int]:
    """Whose it is. Raises DamagedUngradedFile."""
    return _opened(packed)[0]["tags"]


def unpack_ungraded(packed: bytes, task: Task, tags: Mapping[str, int]) -> UngradedAttempt:
    """What `pack_ungraded` was given for this task under these tags. Raises DamagedUngradedFile."""
    from etude.agent.harness.agent import AgentOutcome  # the trainer reads groups and needs no harness

    head, rest = _opened(packed)
    base = _base(task)
    expected, found = (dict(tags), task.id, key_of(task.id, base)), (head["tags"], head["task"], head["base"])
    if expected != found:
        raise DamagedUngradedFile(
            f"an ended attempt of {found}, where one of {expected} should be: it is rolled out again"
        )
    token_bytes, route_bytes = head["sizes"]
    at = token_bytes + route_bytes
    files = {path: data for path, data in base.items() if path not in set(head["gone"])}
    for path, size, *mode in head["changed"]:  # without a mode where an earlier release wrote it
        files[path] = file_bytes(rest[at : at + size], *mode)
        at += size
    session = _session(head, rest[:token_bytes], rest[token_bytes : token_bytes + route_bytes])
    reason, message, counters, seconds = head["outcome"]
    outcome = AgentOutcome(reason, message, session.segments(), counters, session, seconds)
    return UngradedAttempt(outcome=outcome, files=files, **{name: head[name] for name in _OF_ATTEMPT})


def _base(task: Task) -> dict[str, bytes]:
    return {path: text.encode() for path, text in task.files.items()}


def _opened(packed: bytes) -> tuple[dict[str, Any], bytes]:
    """The head, and what comes behind it. Bytes that pass the checksum are the written ones, so beyond that only their format is checked."""
    if len(packed) <= DIGEST or hashlib.sha256(packed[DIGEST:]).digest() != packed[:DIGEST]:
        raise DamagedUngradedFile(
            f"{len(packed)} bytes that are no whole ended attempt (checksum): it is rolled out again"
        )
    try:
        data = decompress(packed[DIGEST:], max(LEAST_BOUND_BYTES, MOST_RATIO * len(packed)))
    except BadFrame as error:
        raise DamagedUngradedFile(f"{error}: it is rolled out again") from error
    stop = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:stop])
    if head["format"] != FORMAT:
        raise DamagedUngradedFile(f"an ended attempt of format {head['format']}, not {FORMAT}: it is rolled out again")
    return head, data[stop:]


def _session(head: dict[str, Any], tokens: bytes, routes: bytes) -> Session:
    by_tokens, by_routes = unpack_tokens(tokens), unpack_routes(routes)
    entries = [
        Entry(number, parent, type_, at_s, data, by_tokens.get(number), by_routes.get(number))
        for number, parent, type_, at_s, data in head["entries"]
    ]
    return Session(SessionHeader(**head["header"]), entries)
