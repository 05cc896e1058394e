"""An attempt's session as a file, in the harness' own format (promise 1): what RL and the bench leave to read and to replay.

Attempts record in memory, because most sessions are never looked at; those that are kept are written here, once the verdict
is known, in one go. A kept session replays like a demonstration does: `etude session replay FILE`. Expert choices are left
out: only training reads them, and RL's are in its `groups/`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from etude.core.trace.entry import Entry
from etude.core.trace.session import Session
from etude.core.trace.writer import write_session
from etude.rollout.attempt import Attempt


def keep_session(path: Path, attempt: Attempt, facts: dict[str, Any]) -> None:
    """Write the attempt's session with its verdict as the last entry. `facts` (stage, level, ...) go into the header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    recorded = attempt.outcome.session
    verdict = {"score": attempt.verdict.score, "reason": attempt.verdict.reason}
    at_s = recorded.entries[-1].at_s if recorded.entries else 0.0
    entries = [*recorded.entries, Entry(len(recorded.entries), None, "verdict", at_s, verdict)]
    facts = {**recorded.header.recipe, **facts, "tries": attempt.tries}
    write_session(path, Session(replace(recorded.header, recipe=facts), entries), keep_routes=False)
