"""Lines of the program between those of the model and of the person."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from etude.agent.app.terminal import print_dim


@pytest.mark.parametrize("line", ["back end local serves (no [/usr/bin/bwrap] here)", "[bold]x[/red]", "[link=y]"])
def test_brackets_in_a_line_are_no_markup(line: str) -> None:
    out = io.StringIO()
    print_dim(Console(file=out, width=200), line)
    assert out.getvalue() == f"{line}\n"
