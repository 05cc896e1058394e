"""A session with every kind of token entry, as an agent would record it."""

from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from etude.core.trace.entry import EntryRoutes, EntryTokens, SessionHeader
from etude.core.trace.session import Recorder


def _fill(recorder: Recorder) -> Recorder:
    """Request, a turn with routes, a result, a turn; then a summary's segment with one turn; then a fork."""
    rows = np.arange(5 * 2 * 2, dtype=np.uint8).reshape(5, 2, 2)
    add = recorder.append
    root = add("message", {"role": "user", "text": "fix é\ud800"}, tokens=EntryTokens([4, 50, 2], 3))
    turn = add(
        "completion",
        {"message": {"role": "assistant", "text": "x"}, "finish": "stop"},
        parent=root,
        tokens=EntryTokens([5, 60, 2], 1, [-0.1, -0.25], [3, 4]),
        routes=EntryRoutes(0, rows),
    )
    recorder.flush()
    result = add("tool_result", {"text": "ok", "failed": False}, parent=turn, tokens=EntryTokens([6, 70, 2], 3))
    add("completion", {"finish": "length"}, parent=result, tokens=EntryTokens([5, 80, 2], 1, [-0.5], [4]))
    recorder.flush()
    carried = add("summary", {"text": "s"}, parent=root, tokens=EntryTokens([4, 8, 90, 2], 4))
    add("completion", {"finish": "stop"}, parent=carried, tokens=EntryTokens([5, 2], 1, [-2.0], [5]))
    recorder.flush()
    fork = add("fork", {}, tokens=EntryTokens([4, 91, 5], 3))
    add("completion", {"finish": "stop"}, parent=fork, tokens=EntryTokens([92, 2], 0, [-1.0, -1.5], [6, 6]))
    add("counters", {"counters": {"turns": 4.0}})
    add("end", {"reason": "done"})
    recorder.close()
    return recorder


@pytest.fixture
def fill() -> Callable[[Recorder], Recorder]:
    return _fill


@pytest.fixture
def header() -> SessionHeader:
    return SessionHeader("s-1", "task-1", harness="abc", recipe={"stage": "rl", "seed": 3})
