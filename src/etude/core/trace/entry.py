"""One line of a session: a typed node of a tree, with the tokens it added (kept in side files, keyed by the entry's id).

What each type holds is `schema.py`, published as `docs/session-format.md`.

The path from the root to a leaf is one linear token sequence, that is one `Segment`: an entry stores only the tokens it
adds, a self-summary hangs its continuation on the original request, a fork starts a new root (promises 2 and 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Sequence

import numpy as np

from etude.core.trace.completion import SampledTokens

EntryType = Literal[
    "message",
    "completion",
    "tool_result",
    "summary",
    "shortened",
    "fork",
    "fault",
    "effort",
    "harness",
    "approval",
    "edit",
    "undo",
    "lints",
    "link",
    "counters",
    "verdict",
    "end",
    "foreign",
]
Effort = Literal["low", "medium", "high"]

FORMAT_VERSION = 2


@dataclass(frozen=True)
class EntryTokens:
    """The tokens an entry adds: `lead` rendered ones, then sampled ones with provenance, then rendered ones to the end.

    A completion leads with the generation prompt and, if it was cut off, ends with the end marker the harness added.
    """

    ids: list[int]
    lead: int = 0
    logprobs: list[float] = field(default_factory=list)  # one per sampled token
    versions: list[int] = field(default_factory=list)  # one per sampled token


@dataclass(frozen=True)
class EntryRoutes:
    """Routes that came with a completion: absolute positions in its segment, `rows[i]` belonging to `start + i`."""

    start: int
    rows: np.ndarray  # (N, L_moe, K) uint8 or uint16


def turn_tokens(
    lead: Sequence[int], sampled: SampledTokens, tail: Sequence[int] = ()
) -> tuple[EntryTokens, EntryRoutes | None]:
    """A turn as its entry holds it: `lead` was rendered in front of it, `tail` closes it."""
    tokens = EntryTokens([*lead, *sampled.ids, *tail], len(lead), sampled.logprobs, sampled.versions)
    routes = sampled.routes
    return tokens, EntryRoutes(sampled.route_start, routes) if routes is not None and len(routes) else None


@dataclass(frozen=True)
class Entry:
    """One entry. `at_s` is seconds since the session began; `parent` is the entry whose tokens come just before."""

    id: int
    parent: int | None
    type: EntryType
    at_s: float
    data: dict[str, Any]
    tokens: EntryTokens | None = None
    routes: EntryRoutes | None = None

    def to_json(self) -> dict[str, Any]:
        return {"type": self.type, "id": self.id, "parent": self.parent, "at_s": self.at_s, **self.data}


@dataclass(frozen=True)
class SessionHeader:
    """The first line: what is needed to read, attribute and replay the session."""

    session_id: str
    task_id: str = ""
    harness: str = ""  # harness hash: prompt bytes, schemas, versions, environment facts
    harness_facts: dict[str, Any] = field(default_factory=dict)  # what that hash is of, so that two can be compared
    effort: Effort = "medium"  # asked for at the start; an `effort` entry says when it changed
    policy: str = ""
    takes_tokens: bool = False
    created_unix_s: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)  # the harness settings, as JSON
    facts: dict[str, Any] = field(default_factory=dict)  # task facts the harness was given
    recipe: dict[str, Any] = field(default_factory=dict)  # recipe facts: name, stage, seed ...
    version: int = FORMAT_VERSION
