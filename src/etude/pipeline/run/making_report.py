"""`report.json` of task generation, rewritten while it runs: whatever ends it, even a kill, the folder shows what was decided by then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from etude.core.events.finite import dumps
from etude.evaluate.bench.runs.folder import replace_text
from etude.pipeline.run.machine import machine
from etude.pipeline.run.meter import StageCost
from etude.tasks.generate.protocols import GenerationProgress, ProgressCallback
from etude.tasks.generate.run.journal import GenerationJournal
from etude.tasks.generate.run.report import build_report

FILE = "report.json"
EVERY_S = 30.0  # a kill loses the account of so much time, and no decision


class MakingReport:
    """Belongs to one run of a making. `spent` is a meter's; what it measures is written down by differences."""

    def __init__(self, folder: Path, decisions: GenerationJournal) -> None:
        self.path, self.decisions = folder / FILE, decisions
        self.faults: list[str] = []
        self._cost = StageCost()
        self._reported = StageCost()
        self._wrote = time.monotonic()

    def spent(self, cost: StageCost) -> None:
        self._cost = cost

    def with_writes(self, progress: ProgressCallback) -> ProgressCallback:
        """`progress`, with the report written now and then."""

        def on_progress(so_far: GenerationProgress) -> None:
            progress(so_far)
            if time.monotonic() - self._wrote >= EVERY_S:
                self.write()

        return on_progress

    def write(self, splits: dict[str, Any] | None = None) -> dict[str, Any]:
        """The document, as it lies in the folder from now on. `splits`: what training and measuring share, at the end of a making."""
        now, before = self._cost, self._reported
        self._reported = now
        self.decisions.spend(now.seconds - before.seconds, now.core_seconds - before.core_seconds)
        document = {**build_report(self.decisions, self.faults), "machine": machine(), "splits": splits or {}}
        replace_text(self.path, dumps(document, indent=1) + "\n")
        self._wrote = time.monotonic()
        return document
