"""Results that were measured before: a comparison that was stopped goes on, and a further checkpoint costs only its own measures.

A result is kept under what it is a result of: the checkpoint's files, the questions, the settings. Anything else is measured again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from etude.core.files import replace_file


class ResultCache:
    """JSON files in `folder`, one a result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, measure: str, of: Any) -> Any | None:
        """What was kept for this, or None."""
        path = self._path(measure, of)
        return json.loads(path.read_text())["result"] if path.is_file() else None

    def put(self, measure: str, of: Any, result: Any) -> None:
        """Whole or not at all. Raises OSError where the folder can't be written."""
        path = self._path(measure, of)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"measure": measure, "result": result}))

    def _path(self, measure: str, of: Any) -> Path:
        digest = hashlib.sha256(json.dumps([measure, of], sort_keys=True).encode()).hexdigest()
        return self.folder / f"{measure}-{digest[:24]}.json"
