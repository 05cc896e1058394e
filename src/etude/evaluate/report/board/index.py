"""All attempts of a run in one table that follows the run's files, kept in `board.index` so that it is read once.

Promise: a file that is damaged, half-written or of another form costs its own rows alone and is named in `problems`.
Every public method may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from etude.core.files import replace_file
from etude.evaluate.report.board.change import Key, Problems, RowChange, RowSource
from etude.evaluate.report.board.columns import Columns
from etude.evaluate.report.board.sources.bench import BenchAttempts
from etude.evaluate.report.board.sources.demonstrations import SOURCE as DEMONSTRATION
from etude.evaluate.report.board.sources.demonstrations import Demonstrations
from etude.evaluate.report.board.sources.rl import SOURCE as RL
from etude.evaluate.report.board.sources.rl import RlRollouts

# Which attempts a stand-alone page holds in full: flagged ones first, then some of every kind, spread evenly. Pure.
#
# A kind is who answered and whether it was solved, sessions that were kept before those of which there are only
# tokens. Kinds take turns, and within one the order is that of van der Corput: wherever it ends, what was taken is
# spread over the whole run.


def choose_attempts(columns: Columns, flagged: Sequence[int] = ()) -> Iterator[int]:
    """Rows of which there is more than figures, in the order in which they should be taken; each once."""
    flagged_rows = set(flagged)
    yield from dict.fromkeys(flagged)
    for kinds in _kinds(columns):
        waiting = [[rows[place] for place in spread(len(rows))] for rows in kinds]
        for turn in range(max(map(len, waiting), default=0)):
            yield from (rows[turn] for rows in waiting if turn < len(rows) and rows[turn] not in flagged_rows)


def spread(count: int) -> list[int]:
    """0 to count - 1, bits reversed: any beginning of it is spread evenly."""
    bits = max(1, (count - 1).bit_length())
    order = (int(f"{n:0{bits}b}"[::-1], 2) for n in range(2**bits))
    return [place for place in order if place < count]


def _kinds(columns: Columns) -> tuple[list[list[int]], list[list[int]]]:
    """Rows by kind: of kept sessions, and of RL's rollouts without one. Of others without a session nothing more is known."""
    source, policy, outcome = (columns.column(name).tolist() for name in ("source", "policy", "outcome"))
    file, names = columns.column("file").tolist(), columns.words("source")
    kept: dict[tuple[int, int, bool], list[int]] = {}
    tokens: dict[tuple[int, int, bool], list[int]] = {}
    words = columns.words("file")
    for row in range(len(columns)):
        kind = source[row], policy[row], outcome[row] >= 1
        if words[file[row]]:
            kept.setdefault(kind, []).append(row)
        elif names[source[row]] == RL:
            tokens.setdefault(kind, []).append(row)
    return list(kept.values()), list(tokens.values())


STORED = "board.index"
TELL_EVERY_S = 0.5  # while a run is read for the first time


class AttemptIndex:
    """`refresh` reads new rows; `pack` returns the document for a page."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.problems = Problems()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._columns, self._until_ns = self._stored()
        self._rows = self._keys()
        self._waiting: list[RowChange] = []
        self._sources = self._open_sources()
        self._saved = self._columns.generation

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def generation(self) -> int:
        """Grows whenever a row changed."""
        return self._columns.generation

    def refresh(self, tell: Callable[[], None] = lambda: None) -> None:
        """Read what came since, a file at a time, and store the index when something did; `tell` is called now and then."""
        with self._refreshing:
            last_report = 0.0
            for source in self._sources:
                for changes in source.news():
                    self._apply(changes)
                    if time.monotonic() - last_report > TELL_EVERY_S:
                        last_report = time.monotonic()
                        tell()
            with self._lock:
                waiting, self._waiting = self._waiting, []
            if waiting:
                self._apply(waiting)
            if self._columns.generation != self._saved:
                self._store()

    def pack(self, since: int = 0) -> bytes:
        """See `Columns.pack`."""
        with self._lock:
            return self._columns.pack(since)

    def row(self, number: int) -> dict[str, Any]:
        """One row. Raises IndexError for a number that there isn't."""
        with self._lock:
            if not 0 <= number < len(self._columns):
                raise IndexError(f"there is no attempt {number}: the run has {len(self._columns)}")
            return {"row": number} | self._columns.row(number)

    def choose_attempts(self, flagged: Sequence[int] = ()) -> list[int]:
        """Which attempts to show first where not all can be (`chosen.py`)."""
        with self._lock:
            return list(choose_attempts(self._columns, flagged))

    def rows_of(self, attempts: Set[tuple[str, str, int]]) -> list[int]:
        """Rows of (policy, task, pass)."""
        with self._lock:
            return [row for key, row in self._rows.items() if (key[1], key[2], key[4]) in attempts]

    def column(self, name: str) -> tuple[np.ndarray, list[str]]:
        """A copy of a column, and its words if it has any."""
        with self._lock:
            words = self._columns.words(name) if name in self._columns.word_fields else []
            return self._columns.column(name).copy(), words

    def _apply(self, changes: list[RowChange]) -> None:
        with self._lock:
            ready = [change for change in changes if not change.only_known or change.key in self._rows]
            self._waiting += [change for change in changes if change.only_known and change.key not in self._rows]
            if not ready:
                return
            self._columns.tick()
            for change in ready:
                if change.key in self._rows:
                    self._columns.set(self._rows[change.key], **change.values)
                else:
                    self._rows[change.key] = self._columns.add(**change.row)

    def _open_sources(self) -> list[RowSource]:
        places = [(key[3], key[4], key[2]) for key in self._rows if key[0] == RL]
        rl = RlRollouts(self.run, self.problems, {group for group, _, _ in places}, self._until_ns)
        for group, member, task in places:
            rl.remember(group, member, task)
        words, file = self._columns.words("file"), self._columns.column("file").tolist()
        files = {words[file[row]] for key, row in self._rows.items() if key[0] == DEMONSTRATION}
        bench = BenchAttempts(self.run, self.problems)
        return [rl, bench, Demonstrations(self.run, self.problems, files, self._until_ns)]

    def _keys(self) -> dict[Key, int]:
        names = ("source", "policy", "task", "group", "member")
        columns = []
        for name in names:
            values: list[Any] = self._columns.column(name).tolist()
            if name in self._columns.word_fields:
                words = self._columns.words(name)
                values = [words[value] for value in values]
            columns.append(values)
        return {key: row for row, key in enumerate(zip(*columns, strict=True))}

    def _stored(self) -> tuple[Columns, int]:
        path = self.run / STORED
        if not path.is_file():
            return Columns(), -1
        try:
            # One second back: what was written while the index was is read again.
            return Columns.unpack(path.read_bytes()), path.stat().st_mtime_ns - 10**9
        except (ValueError, KeyError, OSError) as error:
            self.problems.record(STORED, f"{error}; it is made again")
            return Columns(), -1

    def _store(self) -> None:
        """Writes the index next to the run's files, whole or not at all; a folder that can't be written to costs the next start some seconds."""
        try:
            replace_file(self.run / STORED, self.pack())
            self.problems.clear(STORED)
        except OSError as error:
            self.problems.record(STORED, f"not kept: {error}; it is made again at every start")
        self._saved = self._columns.generation
