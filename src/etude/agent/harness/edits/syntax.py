"""Whether an edit broke a file: it parsed before and does not afterwards. Asked only of edits that matched loosely, where the file holds
other text than the model wrote; an edit that matched exactly may break a file on the way to the next one.

Python is compiled, which also finds mixed blanks and a `return` outside of its function; other languages are parsed by tree-sitter.
"""

from __future__ import annotations

from etude.agent.code_index.definitions import TooHard
from etude.agent.code_index.grammar_process import first_error
from etude.agent.code_index.languages import GRAMMARS, grammar_name
from etude.core.bounded_python import compile_python

# A larger file costs too much time for a check of one edit.
MAX_BYTES = 256 << 10


def syntax_damage(path: str, before: str, after: str) -> str:
    """What is wrong with the syntax of `after`, in words; "" if nothing is, if `before` did not parse either, or where no parser knows."""
    grammar = grammar_name(path, before)
    if grammar not in GRAMMARS or max(len(before), len(after)) > MAX_BYTES:
        return ""
    if grammar == "python" and not _python_error(before):
        return _python_error(after)
    wrong = _error_line(grammar, before)
    if wrong is None or wrong > 0:
        return ""
    return f"line {wrong}: syntax error" if (wrong := _error_line(grammar, after)) else ""


def _python_error(text: str) -> str:
    try:
        compile_python(text)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {type(error).__name__}: {error.msg}"
    return ""


def _error_line(grammar: str, text: str) -> int | None:
    """The first line with an error, from 1; 0 for none; None for a text that the grammar can't read in time, or crashes on."""
    try:
        return first_error(grammar, text.encode("utf-8", "replace"))
    except TooHard:
        return None
