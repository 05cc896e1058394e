"""What is known of one run directory, as rows for a table and as a document."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

StageState = Literal["done", "running", "stopped", "failed", "pending"]
RECENT_BYTES = 4 << 20  # of an event log: hours of a run, read in 0.1 s


@dataclass(frozen=True)
class StageRow:
    """One stage, or one policy of a bench run. Times are seconds since 1970."""

    name: str
    state: StageState
    started_s: float | None = None
    ended_s: float | None = None
    seconds: float | None = None
    core_seconds: float | None = None
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class RunStatus:
    """`state`: finished, running, stopped, failed or damaged. `where`: the stage that it stopped in. `resume`: the command that goes on."""

    name: str
    path: Path
    kind: str
    state: str
    where: str = ""
    pid: int | None = None
    done: int | None = None
    total: int | None = None
    stages: tuple[StageRow, ...] = ()
    errors: tuple[str, ...] = ()
    resume: str = ""
    fault: str = ""
    active_s: float = 0.0
    bytes: int = 0
    rates: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """What a list of runs holds of it."""
        names = ("name", "kind", "state", "where", "pid", "done", "total", "bytes", "fault")
        return {"path": str(self.path), "active_s": round(self.active_s, 3)} | {n: getattr(self, n) for n in names}

    def document(self) -> dict[str, Any]:
        stages = [asdict(stage) for stage in self.stages]
        return self.row() | {"stages": stages, "rates": self.rates, "errors": list(self.errors), "resume": self.resume}

    @property
    def words(self) -> str:
        """The state for a person: `running (pid 12)`, `stopped at rl`."""
        if self.state == "running":
            return f"running (pid {self.pid})" if self.pid else "running"
        return f"{self.state} {self.where}".rstrip()


def count_states(stages: tuple[StageRow, ...]) -> tuple[int, int]:
    """Stages that are done, and all."""
    return sum(stage.state == "done" for stage in stages), len(stages)
