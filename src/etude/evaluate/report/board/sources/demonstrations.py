"""Sessions that stand alone in `sessions/`: demonstrations, recorded use, a folder of sessions given as a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etude.core.trace.block import DamagedFile
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_session
from etude.evaluate.report.board.change import Problems, RowChange
from etude.evaluate.report.board.sources.figures import of_session

SOURCE = "sessions"


class Demonstrations:
    """`known`: the files that a stored index holds."""

    def __init__(self, run: Path, problems: Problems, known: set[str], known_until_ns: int) -> None:
        self._run = run
        self._problems = problems
        self._read_at: dict[str, int] = dict.fromkeys(known, known_until_ns)

    def news(self) -> Iterator[list[RowChange]]:
        for path in sorted((self._run / "sessions").glob("*.jsonl")):
            name = str(path.relative_to(self._run))
            changed = path.stat().st_mtime_ns
            if changed <= self._read_at.get(name, -1):
                continue
            self._read_at[name] = changed
            try:
                session = read_session(path)
                values = of_session(session)
            except (SessionError, DamagedFile, KeyError, OSError) as error:
                self._problems.record(name, f"{type(error).__name__}: {error}")
                continue
            self._problems.clear(name)
            header = session.header
            member = int(path.stem) if path.stem.isdigit() else 0
            task = header.task_id or header.session_id
            yield [RowChange((SOURCE, header.policy, task, -1, member), values | {"file": name})]
