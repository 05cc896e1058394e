"""A small repository, sessions and agents in folders of the test's own, and the command in a process of its own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etude.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module

from app_lab import SHOP, git


@pytest.fixture
def homes(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sessions lie."""
    monkeypatch.setenv("ETUDE_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setenv("ETUDE_AGENTS", str(tmp_path / "agents"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ETUDE_MODEL", "ETUDE_MODEL_NAME", "ETUDE_CONFIG", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "sessions"


@pytest.fixture
def shop(tmp_path: Path, homes: Path) -> Path:
    """A repository with a bug in its one file."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "A shop")
    return folder


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def items(self, kind: str) -> list[dict[str, Any]]:
        return [e["item"] for e in self.events if e["type"] == "item.completed" and e["item"]["type"] == kind]


@pytest.fixture
def etude(homes: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Done]:
    """The command in this process, by the door of the real one: an interpreter's start for each call would be half of the room's time.
    Ctrl-C, kills, terminals and agents in the background have processes of their own."""

    def run(*words: str, folder: Path | None = None, stdin: str = "", **variables: str) -> Done:
        source = tmp_path / "stdin"
        source.write_text(stdin)
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch, open(source) as file:
            patch.chdir(folder or Path.cwd())
            patch.setattr(sys, "stdin", file)
            patch.setattr(sys, "argv", ["etude", *words])
            for name, value in variables.items():
                patch.setenv(name, value)
            before = signal.getsignal(signal.SIGTERM)
            with pytest.raises(SystemExit) as ended:
                main()
            signal.signal(signal.SIGTERM, before)
        return Done(int(str(ended.value.code)), *capfd.readouterr())

    return run
