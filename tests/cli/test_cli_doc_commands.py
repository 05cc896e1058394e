"""Every command line of the documentation is one that the command line takes: the verb exists, and so does each option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doc_commands import PAGES, ROOT, DocCommand, fenced, inline
from typer.main import get_command

from etude.cli.main import app

# A verb of the launcher ./etude, and a placeholder.
LAUNCHER = {"test", "VERB"}


def refusal(command: DocCommand) -> str:
    """Why the command line does not take it; "" if it does. No verb runs."""
    node: Any = get_command(app)
    words = list(command.words)
    try:
        while words and hasattr(node, "resolve_command") and not words[0].startswith("-"):
            if words[0] not in node.list_commands(None) and getattr(node, "fallback", ""):
                words.insert(0, node.fallback)
            context = node.make_context(node.name, [words[0]], resilient_parsing=True)
            verb = words[0]
            _, node, words = node.resolve_command(context, words)
            if node is None:
                return f"there is no verb {verb}"
        node.make_context(node.name, words)
    except Exception as error:  # noqa: BLE001 - typer's own copy of click has no public names for its errors
        return _fault(error, command.whole)
    return ""


def _fault(error: Exception, whole: bool) -> str:
    """A page's paths and addresses need not exist here, and the text names verbs without their arguments and with placeholders."""
    kind, message = type(error).__name__, getattr(error, "message", str(error))
    ours = ("Exit", "NoArgsIsHelpError", *(() if whole else ("MissingParameter", "BadParameter")))
    names_an_option = not whole and "requires an argument" in message  # and not its value
    fine = kind in ours or names_an_option or "does not exist" in message or "No such file" in message
    return "" if fine else f"{kind}: {message}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_is_taken_by_the_command_line(page: Path) -> None:
    found = [one for one in (*fenced(page), *inline(page)) if one.words and one.words[0] not in LAUNCHER]
    assert {str(command): why for command in found if (why := refusal(command))} == {}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("corpus stat runs", "there is no verb stat"),
        ("bench run exercises --polcy a", "NoSuchOption"),
        ("corpus export", "MissingParameter"),
        ("agent --effort most", "BadParameter"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(words: str, why: str) -> None:
    assert refusal(DocCommand("page", words, tuple(words.split()), whole=True)).startswith(why)
