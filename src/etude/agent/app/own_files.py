"""Where a person's own files lie, beside their sessions and in their settings folder. No sandbox shows them."""

from __future__ import annotations

import os
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
