"""The run's vocabulary, stored once next to its sessions, so that a reader needs no tokenizer to show tokens."""

from __future__ import annotations

import json
from pathlib import Path

from etude.core.files import replace_file

FILE_NAME = "vocabulary.json"


def write_vocabulary(folder: Path, tokens: list[str]) -> Path:
    """Write it, or check that the one there is the same: a run has one vocabulary."""
    path = folder / FILE_NAME
    if path.exists():
        if read_vocabulary(folder) != tokens:
            raise ValueError(f"{path} holds another vocabulary; a run has one, start a new run directory")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(tokens, ensure_ascii=True, separators=(",", ":")))
    return path


def read_vocabulary(folder: Path) -> list[str]:
    """Every token's text by id."""
    return json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
