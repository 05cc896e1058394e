"""One warning: what is wrong, by which figures, where to look, what to do."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["alarm", "hint"]


@dataclass(frozen=True)
class Advisory:
    """`alarm`: the run may be wasting its time or teaching the wrong thing. `hint`: it is healthy and could learn faster."""

    level: Level
    name: str  # of the rule; docs/report.md explains it under this name
    said: str  # one sentence with the figures
    remedy: str
    evidence: dict[str, Any] = field(default_factory=dict)  # the figures by name
    look: str = ""  # what `etude report query RUN` shows it with
    section: str = ""  # of report.html

    @property
    def why(self) -> str:
        """Where the rule and its bound are explained."""
        return f"docs/report.md#{self.name.replace('_', '-')}"

    def to_json(self) -> dict[str, Any]:
        evidence = {name: value if _finite(value) else str(value) for name, value in self.evidence.items()}
        return {**asdict(self), "evidence": evidence, "why": self.why}


def _finite(value: Any) -> bool:
    """JSON has no infinity and no not-a-number."""
    return not isinstance(value, float) or math.isfinite(value)
