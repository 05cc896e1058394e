"""Python that somebody else may have written, parsed within bounds.

CPython's parser takes a memory that grows with the square of a dotted name's length: 200 KB of `import a.a.a…` take over 10 GB (3.11). Other texts
raise MemoryError or RecursionError for deep nesting, or ValueError for a zero byte. All of that is a SyntaxError here.
"""

from __future__ import annotations

import ast
import re
import warnings
from types import CodeType

MOST_NAME_PARTS = 1_000  # of one dotted name; the longest in use have ten
# Names joined by dots as in an import: blanks and continued lines may be around a dot. Nothing gives back what it matched: linear in the text.
_BLANK = r"(?:[ \t\f]|\\\r?\n)*+"
_DOTTED = re.compile(rf"(?<!\w)\w++(?:{_BLANK}\.{_BLANK}\w++)++")


# What the parser calls the text, so that its warnings, which are nothing to the person at the terminal, can be silenced.
_NAME = "<text>"
warnings.filterwarnings("ignore", module=re.escape(_NAME))


def parse_python(text: str | bytes) -> ast.Module:
    """The tree of a module. Raises SyntaxError for all that is no Python, or too much for the parser."""
    _check_names(text)
    try:
        return ast.parse(text, _NAME)
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SyntaxError(_error_text(error)) from error


def parse_expression(text: str) -> ast.expr:
    """The tree of one expression. Raises SyntaxError like `parse_python`."""
    _check_names(text)
    try:
        return ast.parse(text, _NAME, "eval").body
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SyntaxError(_error_text(error)) from error


def compile_python(text: str) -> CodeType:
    """The code of a module. Raises SyntaxError like `parse_python`."""
    _check_names(text)
    try:
        return compile(text, _NAME, "exec", dont_inherit=True)
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SyntaxError(_error_text(error)) from error


def _error_text(error: Exception) -> str:
    return str(error) or "nested too deeply"


def _check_names(text: str | bytes) -> None:
    source = text.decode("latin-1") if isinstance(text, bytes) else text
    if source.count(".") < MOST_NAME_PARTS:
        return
    for found in _DOTTED.finditer(source):
        if found[0].count(".") >= MOST_NAME_PARTS:
            raise SyntaxError(f"a dotted name has more than {MOST_NAME_PARTS:,} parts")
