"""The verbs of `etude`: for each the module that holds it, which is imported when the verb is used, and its line in `etude --help`.

Promise: `etude --help` and the completion of a verb's name import no verb.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterator, ValuesView
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

# Parameters that take a path or another name in one string say so by their metavar: "DIR|exercises|real", "URL|DIR", "[RECIPE]...".
_PLACES = {"DIR", "FILE", "FROM", "PATH", "RECIPE", "STORE", "SUITE", "TO"}


def refuse_empty_paths(command: Any) -> None:
    """Makes the command, and those below it, refuse empty and blank paths as a usage error before anything runs."""
    for inner in getattr(command, "commands", {}).values():
        refuse_empty_paths(inner)
    for parameter in command.params:
        if takes_path(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value)


def takes_path(parameter: Any) -> bool:
    """Whether a parameter of a command is a path, to read or to write, by its type or its metavar."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if annotation is Path or Path in get_args(annotation):
        return True
    return bool(_PLACES & set(re.split(r"[\s|.\[\]]+", parameter.metavar or "")))


def _process(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """`value`: a string or a list of strings as typed, the default, or None."""
    if any(not text.strip() for text in _texts(value)):
        raise typer.BadParameter(
            "the path is empty; name a file or a folder, or . for the current folder", context, parameter
        )
    return process(context, value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


# Every typer app of the command line. `cli.answer` suggests, within a small edit distance.
APP_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True, "add_completion": False, "pretty_exceptions_enable": False, "suggest_commands": False,
}  # fmt: skip


@dataclass(frozen=True)
class Verb:
    """`target`: module below `etude.cli` and function or typer app in it. `help`: the first paragraph of its own help. `cls`: its command class."""

    name: str
    target: str
    help: str
    cls: str = ""
    hidden: bool = False

    def load(self) -> Any:
        """The command, with its module imported."""
        module_name, _, attribute = self.target.partition(":")
        module = import_module(f"etude.cli.{module_name}")
        found, parent = getattr(module, attribute), typer.Typer(**APP_SETTINGS)
        parent.callback()(lambda: None)
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=self.name, hidden=self.hidden)
        else:
            parent.command(self.name, cls=getattr(module, self.cls) if self.cls else None)(found)
        command = typer.main.get_group(parent).commands[self.name]
        refuse_empty_paths(command)
        return command

    def listing(self) -> Any:
        """What `etude --help` needs of the command."""
        return TyperCommand(self.name, help=self.help, hidden=self.hidden, rich_markup_mode=None)


VERBS = (
    Verb(
        "agent",
        "agent:agent",
        "A coding agent in this folder, with any OpenAI-compatible model or a local checkpoint.",
        cls="AgentCommand",
    ),
    Verb(
        "run",
        "run:run",
        "Run a recipe end to end (default: laptop). Stopped at any point, the same command goes on from there.",
    ),
    Verb(
        "pretrain",
        "stages:pretrain",
        "Pretrain in its phases, with draft layers: the run's stages corpus, base, short, mtp and long.",
    ),
    Verb("sft", "stages:sft", "Fine-tune on the scripted expert's sessions: the run's stages sessions and sft."),
    Verb("rl", "stages:rl", "Train by asynchronous reinforcement learning in sandboxes: the run's rl stage."),
    Verb(
        "runs",
        "status:runs",
        "List the runs below a folder with kind, state, stages, last activity and size, newest first. Nothing is changed.",
    ),
    Verb(
        "status",
        "status:status",
        "Show one run: its stages and their times, current rates, the last errors, and the command that resumes it. Nothing is changed.",
    ),
    Verb(
        "reload",
        "reload:reload",
        "Replace engines and trainer of a run while it goes on: for changed code, or with --set engine.max_batch=32 and its like.",
    ),
    Verb(
        "simulate",
        "simulate:simulate",
        "Simulate an RL run with the production scheduler on a virtual clock.",
        cls="SimulateCommand",
    ),
    Verb(
        "ablate",
        "ablate:ablate",
        "Vary one setting of a recipe over several seeds and fit a line. Stopped at any point, the same command goes on.",
    ),
    Verb(
        "plan",
        "plan:plan",
        "State what training on N GPUs would take, without any: memory by part, bytes by collective, time; exit 1 if it does not fit.",
        cls="PlanCommand",
    ),
    Verb("launch", "launch:app", "Print what a scheduler is given to run a recipe on its machines."),
    Verb(
        "doctor",
        "doctor:doctor",
        "Check for each purpose whether this machine can serve it and what is missing; exit 1 if something required is missing.",
    ),
    Verb(
        "clean",
        "clean:clean",
        "Remove the files that runs wrote into their directories. Asks first, refuses a run in progress, and keeps files that no run wrote.",
    ),
    Verb("agents", "agent:app", "Agents in the background (etude agent --background): each in its own worktree."),
    Verb(
        "bench",
        "bench:app",
        "Run a benchmark suite with several policies and judge their attempts. [RECIPE]... without a verb is `etude bench recipe`.",
    ),
    Verb("report", "report:app", "Read a run's files. [DIR] without a verb is `etude report rebuild [DIR]`."),
    Verb("corpus", "corpus:app", "Build a library of code from folders, repositories and packages, and look into it."),
    Verb("base", "base:app", "Compare checkpoints before one is trained on."),
    Verb("tokenizer", "tokenizer:app", "Train a tokenizer, extend one and its checkpoint, check one."),
    Verb("model", "model:app", "Fetch, import or upload a checkpoint; prove one before it is trained or served."),
    Verb(
        "serve",
        "serve:serve",
        "Serve a checkpoint to OpenAI clients until stopped: chat, completions, tools, streams and logprobs.",
    ),
    Verb("tasks", "tasks:app", "Make, import, check, list, show and export tasks."),
    Verb("sandbox", "sandbox:app", "Probe the sandboxes of this machine, work in one, see what lives, measure."),
    Verb(
        "session",
        "session:app",
        "Read, compare, export, import, replay and link recorded sessions: of use, demonstrations, RL's, the bench's.",
    ),
    Verb(
        "sessions",
        "session:app",
        "Read, compare, export, import, replay and link recorded sessions: of use, demonstrations, RL's, the bench's.",
        hidden=True,
    ),
    Verb("capture", "capture:app", "Capture the sessions of other agents: an endpoint they are pointed at."),
    Verb("weights", "weights:app", "Show, verify or relay a weight store; measure weight sync."),
    Verb("gpu", "gpu:app", "Measure what this machine's GPUs do with this code."),
    Verb("index", "index:app", "Search code by what it does: build, ask and serve a folder's index."),
)


class LazyCommands(dict[str, Any]):
    """Commands by name. A command is loaded when it is taken out."""

    def __init__(self, verbs: tuple[Verb, ...]) -> None:
        super().__init__({verb.name: verb.listing() for verb in verbs})
        self._verbs = {verb.name: verb for verb in verbs}
        self._loaded: dict[str, Any] = {}

    def listing(self, name: str) -> Any:
        """The name and the help alone; None for a name that is no verb."""
        return super().get(name)

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._verbs[name].load()
        return self._loaded[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return {name: self[name] for name in self}.items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return {name: self[name] for name in self}.values()


class LazyGroup(TyperGroup):
    """A group of VERBS. Help and completion of names read the table; running a verb loads that verb."""

    def __init__(self, **settings: Any) -> None:
        settings["commands"] = LazyCommands(VERBS)
        super().__init__(**settings)
        self._listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        commands: Any = self.commands
        return commands.listing(cmd_name) if self._listing else commands.get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        self._listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._listing = False
