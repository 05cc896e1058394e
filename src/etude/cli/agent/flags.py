"""What was written on the command line: None and False where nothing was."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.cli.agent import options


@dataclass(frozen=True)
class Flags:
    """The options of `etude agent` that say how to work; names as there."""

    prompt: str | None = None
    model: str | None = None
    name: str | None = None
    key_env: str | None = None
    preset: str | None = None
    effort: options.EffortName | None = None
    max_turns: int | None = None
    context: int | None = None
    sandbox: options.Walls | None = None
    network: bool = False
    approval: options.ApprovalName | None = None
    folder: Path | None = None
    resume: str | None = None
    go_on: bool = False
    background: bool = False
    test: str | None = None
    omit: list[str] | None = None
    max_tokens_field: str | None = None
    no_index: bool = False
    no_mcp: bool = False
    config: Path | None = None
    json: bool = False
