"""Looks at the run's files once in a while as long as somebody follows, and wakes those who do. One thread for all of them."""

from __future__ import annotations

import threading
from pathlib import Path

from etude.evaluate.report.board.curves import MetricHistory
from etude.evaluate.report.board.index import AttemptIndex
from etude.evaluate.report.board.sections import Sections

FOLLOWING = "the run's folder"
EVERY_S = 1.0  # a step takes seconds at the least; a look costs a few stats


class BoardFollower:
    """`state` is a number for each kind of news; it grows when there is some."""

    def __init__(self, run: Path) -> None:
        self.index = AttemptIndex(run)
        self.history = MetricHistory(run, self.index.problems)
        self.sections = Sections(run)
        self._wake = threading.Condition()
        self._following = 0
        self._pages = 0
        self._sign = self.sections.sign()
        self._state: dict[str, int] = {}
        self._ready = False
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="board-follower", daemon=True)

    def start(self) -> None:
        """Read what there is, in the background: pages open meanwhile and fill."""
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._thread.join()

    def state(self) -> dict[str, int]:
        """What is known now; `ready` is 1 once all that was there at the start has been read."""
        return {
            "rollouts": self.index.generation,
            "curves": self.history.generation,
            "pages": self._pages,
            "problems": len(self.index.problems.found),
            "ready": int(self._ready),
        }

    def news(self, seen: dict[str, int], timeout_s: float) -> dict[str, int] | None:
        """Waits for a state other than `seen`; None when there was none in time, or the board stops. While somebody waits
        the files are looked at."""
        with self._wake:
            self._following += 1
            self._wake.notify_all()
            try:
                self._wake.wait_for(lambda: self._stopped or self.state() != seen, timeout_s)
            finally:
                self._following -= 1
            return None if self._stopped or self.state() == seen else self.state()

    @property
    def stopped(self) -> bool:
        return self._stopped

    def _work(self) -> None:
        while True:
            try:
                self._look()
                self.index.problems.clear(FOLLOWING)
            except (OSError, KeyError, TypeError, ValueError) as error:  # a file went, or is none of ours: look again
                self.index.problems.record(FOLLOWING, f"{type(error).__name__}: {error}")
            self._ready = True
            self._tell()
            with self._wake:
                self._wake.wait_for(lambda: self._stopped, EVERY_S)
                self._wake.wait_for(lambda: self._stopped or self._following > 0)
                if self._stopped:
                    return

    def _look(self) -> None:
        self.history.refresh()
        self.index.refresh(self._tell)
        if (sign := self.sections.sign()) != self._sign:
            self._sign, self._pages = sign, self._pages + 1

    def _tell(self) -> None:
        with self._wake:
            self._wake.notify_all()
