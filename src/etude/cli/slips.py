"""What a person reads who typed a verb or an option that is not there. Suggestions keep to a small edit distance."""

from __future__ import annotations

import re
from typing import Any

from etude.core.spelling import similar

MOST = 3
_NO_COMMAND = re.compile(r"No such command '(.*)'\.", re.DOTALL)


def usage_message(error: Any) -> str:
    """The words of one of click's usage errors, with its own suggestions checked. Typer carries its own copy of click, whose usage errors
    have no public name, so they are known by their attributes."""
    if getattr(error, "possibilities", None):
        error.possibilities = similar(error.option_name, error.possibilities, MOST)
    message: str = error.format_message()
    found = _NO_COMMAND.match(message)
    commands = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", None)
    if found is None or commands is None:
        return message
    shown = [name for name, command in commands.items() if not command.hidden]
    near = similar(found[1], shown, MOST)
    if near:
        return f"{found[0]} Did you mean {', '.join(near)}?"
    path = error.ctx.command_path
    return f"{found[0]} {path} --help lists the commands"
