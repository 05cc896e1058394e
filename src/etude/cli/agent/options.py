"""The options of `etude agent`. Without one the settings file counts, then the default that the help names."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from etude.cli.option import preset_choice

# What `--resume` means without an ID: the person chooses.
CHOOSE = "?"


class AgentCommand(TyperCommand):
    """Its `--resume` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--resume") if "--resume" in args else -1
        if at >= 0 and (at + 1 == len(args) or args[at + 1].startswith("-")):
            args = [*args[: at + 1], CHOOSE, *args[at + 1 :]]
        return super().parse_args(ctx, args)


class EffortName(StrEnum):
    low = "low"
    medium = "medium"
    high = "high"


class Walls(StrEnum):
    workspace = "workspace"
    none = "none"


class ApprovalName(StrEnum):
    never = "never"
    commands = "commands"
    writes = "writes"
    all = "all"


Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt", "-p", help="Request to answer without a terminal (headless), then exit. `-` reads it from stdin."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="ETUDE_MODEL",
        metavar="URL|DIR|NAME",
        help="An OpenAI-compatible endpoint, or a checkpoint.",
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", envvar="ETUDE_MODEL_NAME", help="The model's name at the endpoint.")
]
KeyEnv = Annotated[
    str | None,
    typer.Option(
        "--key-env", metavar="VARIABLE", help="The environment variable with the API key. Default: OPENAI_API_KEY."
    ),
]
Preset = Annotated[
    str | None, typer.Option("--preset", help="Tool names and prompts. Default: by the model.", **preset_choice())
]
Effort = Annotated[EffortName | None, typer.Option("--effort", help="Reasoning effort. Default: medium.")]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", min=1, help="Turns of one request. Default: 100.")]
Context = Annotated[
    int | None, typer.Option("--context", min=8192, metavar="TOKENS", help="The model's window. Default: 128k.")
]
Sandbox = Annotated[
    Walls | None,
    typer.Option(
        "--sandbox",
        help="Isolation of commands: workspace can write only in the folder, none runs them as you. Default: workspace.",
    ),
]
Network = Annotated[bool, typer.Option("--network", help="Let sandboxed commands use the network.")]
Approval = Annotated[
    ApprovalName | None,
    typer.Option(
        "--approval", help="Actions that need the user's approval. Default: never; without a sandbox: commands."
    ),
]
Folder = Annotated[
    Path | None, typer.Option("--folder", "-C", metavar="DIR", help="Folder to work in. Default: the current one.")
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume", metavar="ID|last", help="Resume this session. Without an ID, choose a session of this folder."
    ),
]
Continue = Annotated[bool, typer.Option("--continue", "-c", help="Resume the last session of this folder.")]
Undo = Annotated[
    str | None,
    typer.Option("--undo", metavar="ID|last", help="Take back the edits of a session's last request, and end."),
]
All = Annotated[bool, typer.Option("--all", help="Undo all edits of the session; only with --undo.")]
Background = Annotated[
    bool, typer.Option("--background", help="Run in the background in a separate worktree; see `etude agents`.")
]
Acp = Annotated[bool, typer.Option("--acp", help="Serve an editor over stdin and stdout (Agent Client Protocol).")]
Test = Annotated[str | None, typer.Option("--test", metavar="COMMAND", help="Command of the `test` tool (nano, full).")]
Omit = Annotated[
    list[str] | None,
    typer.Option(
        "--omit", metavar="FIELD", help="Request field that the endpoint refuses; it is left out; repeatable."
    ),
]
TokenField = Annotated[
    str | None,
    typer.Option(
        "--max-tokens-field", metavar="NAME", help="Request field for the limit of answer tokens. Default: max_tokens."
    ),
]
NoIndex = Annotated[bool, typer.Option("--no-index", help="Offer no code search over the folder.")]
NoMcp = Annotated[bool, typer.Option("--no-mcp", help="Start no MCP servers, neither the project's nor your own.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Your settings. Default: $ETUDE_CONFIG, ~/.config/etude/agent.toml."),
]
Json = Annotated[bool, typer.Option("--json", help="Print events, one JSON document a line (docs/harness.md).")]
