"""The command in the tests' own process, and the reading of its one document."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from etude.cli.answer import give
from etude.cli.main import app


class Here:
    """The command in this process: the same door, without an interpreter start for each of many cases."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        self._capfd = capfd

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        self._capfd.readouterr()
        code = give(lambda: app(list(words), standalone_mode=False, prog_name="etude"), as_json="--json" in words)
        return subprocess.CompletedProcess(words, code, *self._capfd.readouterr())


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = json.loads(done.stdout)  # fails on anything before or after the document
    assert isinstance(found, dict) and done.stdout.endswith("\n")
    assert (done.returncode != 0) or "error" not in found, done
    return found
