"""Python as libcst's tree, which keeps blanks and comments. Its parser is native and dies of deep nesting, so the depth is looked at first."""

from __future__ import annotations

import ast

import libcst as cst

from etude.core.bounded_python import parse_python
from etude.tasks.fail_to_pass import CandidateRejected

# libcst 1.8 parses 1,000 levels on a thread's stack of 8 MiB and crashes at 20,000; code that people write has some 30.
MOST_LEVELS = 500


def concrete(text: str) -> cst.Module:
    """Raises SyntaxError, also for nesting beyond MOST_LEVELS, and cst.ParserSyntaxError."""
    level: list[ast.AST] = [parse_python(text)]
    for _ in range(MOST_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return cst.parse_module(text)
    raise SyntaxError(f"nested in more than {MOST_LEVELS} levels")


def transform_source(text: str, how: cst.CSTTransformer) -> str:
    """The text after the transformer. Raises CandidateRejected where libcst can't read or write it."""
    try:
        return concrete(text).visit(how).code
    except (SyntaxError, RecursionError, cst.ParserSyntaxError, cst.CSTValidationError) as error:
        raise CandidateRejected(f"a file that names it can't be rewritten: {type(error).__name__}") from error
