"""Where a person's own files lie, beside their sessions and in their settings folder. No sandbox shows them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from etude.agent.git_links.home import sessions_home

CONFIG_VARIABLE = "ETUDE_CONFIG"


def config_file() -> Path:
    """The settings: `$ETUDE_CONFIG`, else `etude/agent.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "etude" / "agent.toml"


def trust_file() -> Path:
    """Which servers of projects may start."""
    return sessions_home().parent / "mcp-approved.json"


def history_file() -> Path:
    """What was typed at the terminal."""
    return sessions_home().parent / "typed"


# --- from history.py: What a person has typed at the terminal, for the arrow up: one file in the state folder, kept by the line, forgotten with a session.


def forget_typed(texts: Collection[str]) -> int:
    """Take these words out; how many there were. The file is a line `# time` before each, then its lines after a plus sign (the form of
    prompt_toolkit's FileHistory)."""
    file = history_file()
    if not file.exists():
        return 0
    stamps, *rows = ("\n" + file.read_text(encoding="utf-8", errors="replace")).split("\n# ")
    kept = [row for row in rows if _words(row) not in texts]
    side = file.with_suffix(".tmp")
    side.touch(mode=0o600)
    side.write_text(stamps.lstrip("\n") + "".join(f"\n# {row}" for row in kept), encoding="utf-8")
    side.replace(file)
    return len(rows) - len(kept)


def _words(row: str) -> str:
    return "\n".join(line.removeprefix("+") for line in row.split("\n")[1:] if line.startswith("+"))
