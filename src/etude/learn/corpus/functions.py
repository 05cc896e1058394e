"""Python functions as files have them: name, parameters as written, source. What lookups are made of.

Only those whose whole signature is on one line and names at least one parameter except `self` (and not `*args` first): such
parameters have to be looked up, and can be copied word by word.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from etude.core.bounded_python import parse_python

# Longer parameter lists are few, and one of them would fill a short context.
LONGEST_PARAMETERS = 80
SIGNATURE = re.compile(r"def (?P<name>\w+)\((?P<receiver>(?:self|cls)(?:, *)?)?(?P<parameters>.*)\)(?: *->[^()]*)?:")


@dataclass(frozen=True)
class SourceFunction:
    """`source` starts at `def`, decorators left out, dedented, without a last newline."""

    name: str
    receiver: str  # "self, ", "cls, " or ""
    parameters: str  # the others
    source: str

    @property
    def kind(self) -> Literal["definition", "test"]:
        """A test by pytest's and unittest's naming, or something that is called."""
        return "test" if self.name.startswith("test_") else "definition"

    @property
    def first_parameter(self) -> str:
        """The name of the first parameter, "" of a function without any."""
        found = re.match(r"\w+", self.parameters)
        return found[0] if found else ""


def functions(path: str, text: str) -> Iterator[SourceFunction]:
    """Functions and methods of a Python file in their order, nested ones too; none of another file or one that does not compile."""
    if not path.endswith(".py"):
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escapes in other people's strings
            tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = text.split("\n")  # as ast counts lines: splitlines() also cuts at form feeds
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            # Not dedented by the first line's indent: strings that go on at the margin would lose theirs.
            source = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])).rstrip()
            if (found := _function(source)) is not None:
                yield found


def _function(source: str) -> SourceFunction | None:
    signature = SIGNATURE.match(source)
    if signature is None:
        return None
    function = SourceFunction(signature["name"], signature["receiver"] or "", signature["parameters"], source)
    asked = function.first_parameter and len(function.parameters) <= LONGEST_PARAMETERS
    return function if asked or function.kind == "test" else None
