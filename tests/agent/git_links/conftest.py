"""A repository and sessions that edited it, as an agent would record them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from etude.core.trace.change import TextChange
from etude.core.trace.entry import SessionHeader
from etude.core.trace.writer import SessionWriter


class Lab:
    """A git repository in one folder, its sessions in another."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repo"
        self.home = folder / "home"
        self.root.mkdir()
        self.home.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "A Person")
        self.git("config", "user.email", "person@example.com")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, message: str = "work", *words: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, *words)
        return self.git("rev-parse", "HEAD")

    def session(
        self, name: str, *edits: tuple[str, str | None], began: float = 0.0, ended: bool = True
    ) -> SessionWriter:
        """A session that made these edits (path, new text) for real, one after another."""
        facts = {"instruction": "do it", "test_command": [], "workspace": str(self.root)}
        header = SessionHeader(name, harness="h" * 16, policy="model/x", created_unix_s=began, facts=facts)
        writer = SessionWriter(self.home / f"{name.replace('/', '-')}.jsonl", header, every="line")
        writer.append("message", {"role": "user", "text": "do it"})
        for number, (path, text) in enumerate(edits):
            file = self.root / path
            before = file.read_text() if file.exists() else None
            file.unlink() if text is None else self.write(path, text)
            writer.append("edit", TextChange(path, before, text).to_entry(f"c{number}"))
        if ended:
            self.end(writer)
        return writer

    def end(self, writer: SessionWriter) -> Path:
        writer.append("end", {"reason": "done"})
        writer.close()
        return writer.path

    def found(self) -> list[Any]:
        from etude.agent.git_links.home import sessions_of

        return [*sessions_of(self.home, self.root)]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Lab(tmp_path)
