"""A task of a foreign format, as read: what both formats have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from etude.tasks.importers.harbor_settings import Settings
from etude.tasks.importers.texts import FolderFiles

# Reward files (Harbor), or a parser of what the tests print (Terminal-Bench 1).
HARBOR, TERMINAL_BENCH = "harbor", "terminal-bench"


@dataclass(frozen=True)
class Foreign:
    """A folder as either format describes it. `script`: which of `tests` grades. `parser`: the reader of its output, where the output counts."""

    id: str
    format: str
    instruction: str
    tests: FolderFiles
    script: str
    settings: Settings
    dockerfile: str = ""
    parser: str = ""
    solution: FolderFiles = field(default_factory=FolderFiles)
    described: dict[str, Any] = field(default_factory=dict)  # what else the folder says of itself
