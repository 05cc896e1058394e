"""What a change left in Python files that a careful reviewer would take out, counted: pure, by syntax alone, the same every time.

Of each file that the change made or touched, findings after minus findings before, never below 0:

    commented_out    comment lines that are code
    unused_imports   names imported and never used (not in `__init__.py`, not what `__all__` exports)
    swallowed        `except` clauses that catch everything, or Exception, and do nothing
    complexity       McCabe's number of each function above 10, the excess summed (McCabe 1976)
    broken           1 if the file does not parse (then nothing else of it is counted)

Files in other languages have no findings here: `lint_delta` counts those that the repository's own linters find.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping

from etude.core.bounded_python import parse_python

# McCabe's own bound, which linters took over.
MOST_COMPLEX = 10
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CODE = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Import, ast.ImportFrom, ast.Raise, ast.Delete, ast.Assert, ast.If,
    ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef,
)  # fmt: skip


def quality_of(before: Mapping[str, str], after: Mapping[str, bytes]) -> float:
    """Minus the findings that the change added; `before` and `after` are all files by path."""
    return -float(sum(added_findings(before, after).values()))


def added_findings(before: Mapping[str, str], after: Mapping[str, bytes]) -> dict[str, int]:
    """Findings that the change added, by kind."""
    total: dict[str, int] = {}
    for path, data in after.items():
        text = data.decode("utf-8", "replace")
        if path.endswith(".py") and text != before.get(path):
            old = findings(before.get(path, ""), path)
            for kind, count in findings(text, path).items():
                total[kind] = total.get(kind, 0) + max(0, count - old.get(kind, 0))
    return total


def findings(text: str, path: str = "") -> dict[str, int]:
    """All findings of one file, by kind."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError):
        return {"broken": 1}
    return {
        "commented_out": sum(_is_code(comment) for comment in _comments(text)),
        "unused_imports": 0 if path.endswith("__init__.py") else len(_unused(tree)),
        "swallowed": sum(_swallows(node) for node in ast.walk(tree)),
        "complexity": sum(max(0, _mccabe(n) - MOST_COMPLEX) for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)),
        "broken": 0,
    }


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#").strip()


def _is_code(comment: str) -> bool:
    """Whether a comment is a statement; a bare name, a number or a sentence that happens to parse is none."""
    source = f"{comment} pass" if comment.endswith(":") else comment
    try:
        body = parse_python(source).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    called = len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Call)
    # `note: text` parses as an annotation without a value: that is how people write remarks.
    remark = len(body) == 1 and isinstance(body[0], ast.AnnAssign) and body[0].value is None
    return called or (not remark and any(isinstance(node, _CODE) for node in body))


def _unused(tree: ast.Module) -> set[str]:
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")
        for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    texts = {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }  # __all__, hints
    return imported - used - texts - {"*"}


def _swallows(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    wide = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
    return wide and all(isinstance(one, ast.Pass) for one in node.body)


def _mccabe(function: ast.AST) -> int:
    """1 + branches + the operands beyond the first of `and` and `or`; those of nested functions count with it."""
    nodes = list(ast.walk(function))
    operands = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + sum(isinstance(node, _BRANCHES) for node in nodes) + operands
