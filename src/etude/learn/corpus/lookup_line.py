"""One lookup: the beginning of a line whose rest only the context tells, with the right end of it and wrong ones from the same context.

    definition   `def name(` → the parameters of that function, as where it is quoted or edited
    test         `covered_by(name, test` → the rest of the name of the one test that calls it

The right end occurs next to the name in one place only, and a name that says the answer by itself is not asked.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal, get_args

from etude.core.bounded_python import parse_python

# Python functions as files have them: name, parameters as written, source. What lookups are made of.
#
# Only those whose whole signature is on one line and names at least one parameter except `self` (and not `*args`
# first): such parameters have to be looked up, and can be copied word by word.


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


Kind = Literal["definition", "test"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CHOICES = 4  # of a lookup: chance is one in four
CALLED = re.compile(r"\b([A-Za-z_]\w{3,})\(")  # shorter names occur everywhere
TEST = "test"


@dataclass(frozen=True)
class LookupLine:
    """`answer` follows `prompt`; `others` are as many as make CHOICES."""

    prompt: str
    answer: str
    others: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.prompt}{self.answer}"


def ask(
    kind: Kind, target: SourceFunction, context: Sequence[SourceFunction], known: Set[str], rng: random.Random
) -> LookupLine | None:
    """The lookup whose answer lies in `target`, one of `context`; None if the context answers it twice, or offers too few others.

    `known` are names of functions: of what a test calls, only these are asked for.
    """
    others = [function for function in context if function.name != target.name]
    rng.shuffle(others)
    return _definition(target, others) if kind == "definition" else _test(target, others, known)


def _definition(target: SourceFunction, others: Sequence[SourceFunction]) -> LookupLine | None:
    word = re.compile(rf"\b{re.escape(target.name)}\b")
    if len(word.findall(target.source)) > 1 or any(word.search(function.source) for function in others):
        return None
    wrong: dict[str, SourceFunction] = {}
    for function in others:
        # Ends that begin alike differ late only, or by how common they are.
        if function.first_parameter != target.first_parameter:
            wrong.setdefault(function.first_parameter, function)
    return _line(
        f"def {target.name}({target.receiver}", f"{target.parameters})", [f"{f.parameters})" for f in wrong.values()]
    )


def _test(target: SourceFunction, others: Sequence[SourceFunction], known: Set[str]) -> LookupLine | None:
    said = _squashed(target.name)
    for name in dict.fromkeys(CALLED.findall(target.source)):
        word = re.compile(rf"\b{name}\b")
        if name in known and _squashed(name) not in said and not any(word.search(f.source) for f in others):
            ends = [f"{function.name.removeprefix(TEST)})" for function in others]
            return _line(f"covered_by({name}, {TEST}", f"{target.name.removeprefix(TEST)})", ends)
    return None


def _line(prompt: str, answer: str, others: Sequence[str]) -> LookupLine | None:
    return LookupLine(prompt, answer, tuple(others[: CHOICES - 1])) if len(others) >= CHOICES - 1 else None


def _squashed(name: str) -> str:
    return name.replace("_", "").lower()
