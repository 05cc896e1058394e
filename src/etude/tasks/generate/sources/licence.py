"""The licence of an installed project, read as the corpus reads those of its texts: metadata first, weighed against licence files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from etude.core.licence.book import TEXT_FOLDERS, LicenceBook
from etude.core.licence.metadata import NODE, PYTHON, RUST
from etude.core.licence.texts import NAME

_METADATA = frozenset(name for name, _ in (*PYTHON, *NODE, *RUST))
# What metadata say in words that have no SPDX identifier.
_WORDS = (("PKG-INFO", r"(?m)^License:\s*(.{2,40})$"), ("package.json", r'"license"\s*:\s*"([^"]+)"'))


def licence_of(texts: Mapping[str, str], kind: str) -> str:
    """An SPDX expression, else the metadata's own words, else empty. `texts`: the project's files by path; `kind`: its source's."""
    with tempfile.TemporaryDirectory(prefix="etude-licence-") as place:
        root = Path(place)
        for path, text in texts.items():
            if _is_evidence(path):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
        found = LicenceBook.of_project(root, kind).project.expression
    if found:
        return found
    matches = (re.search(pattern, texts.get(path, "")) for path, pattern in _WORDS)
    return next((match[1].strip() for match in matches if match), "")


def _is_evidence(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder in ("", "debian", *TEXT_FOLDERS) and (name in _METADATA or NAME.match(name) is not None)
