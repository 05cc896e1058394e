"""The user's files in the state folder and the settings folder. No sandbox shows them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from etude.agent.git_links.home import sessions_home
from etude.core.files import replace_file

CONFIG_VARIABLE = "ETUDE_CONFIG"


def config_file() -> Path:
    """The settings: `$ETUDE_CONFIG`, else `etude/agent.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "etude" / "agent.toml"


def trust_file() -> Path:
    """The list of project MCP servers that the user approved."""
    return sessions_home().parent / "mcp-approved.json"


def history_file() -> Path:
    """The history of the terminal's prompt line."""
    return sessions_home().parent / "typed"


def delete_history(texts: Collection[str]) -> int:
    """Delete these texts from the history, and return how many there were.

    The file has the format of prompt_toolkit's FileHistory: before each text a line `# time`, then its lines, each after a plus sign.
    """
    file = history_file()
    if not file.exists():
        return 0
    stamps, *rows = ("\n" + file.read_text(encoding="utf-8", errors="replace")).split("\n# ")
    kept = [row for row in rows if _words(row) not in texts]
    replace_file(file, stamps.lstrip("\n") + "".join(f"\n# {row}" for row in kept), mode=0o600)
    return len(rows) - len(kept)


def _words(row: str) -> str:
    return "\n".join(line.removeprefix("+") for line in row.split("\n")[1:] if line.startswith("+"))
