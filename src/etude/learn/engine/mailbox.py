"""Finished turns until their clients collect them, many at a time: one remote call per turn would cost more than the turn."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from etude.agent.policy.protocol import PolicyError
from etude.core.trace.completion import Completion

Result = Completion | PolicyError
# Results that come within this long after the first of a collection travel with it: half a decode step of a full batch.
GATHER_S = 0.003


class Mailbox:
    """Thread-safe. Numbers are the clients' own."""

    def __init__(self, over: Callable[[], bool]) -> None:
        """`over`: no more results will come."""
        self._over = over
        self._finished: defaultdict[str, list[tuple[int, Result]]] = defaultdict(list)
        self._news = threading.Condition()

    def put(self, client: str, number: int, result: Result) -> None:
        with self._news:
            self._finished[client].append((number, result))
            self._news.notify_all()

    def wake(self) -> None:
        """The collector checks again whether it is over."""
        with self._news:
            self._news.notify_all()

    def collect(self, client: str, timeout_s: float) -> list[tuple[int, Result]]:
        """The client's results since the last collection; waits until there are some, the time is up or it is over."""
        with self._news:
            self._news.wait_for(lambda: bool(self._finished[client]) or self._over(), timeout_s)
            if self._finished[client]:
                self._news.wait_for(self._over, GATHER_S)
            return self._finished.pop(client, [])
