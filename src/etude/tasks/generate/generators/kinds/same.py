"""Variants of a module that behave the same and are written differently: tests and examples must not tell them apart.

One differs in comments and lines alone; the other in its syntax tree and bytecode as well (an unused name in every function).
"""

from __future__ import annotations

import ast
from typing import Any

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.kinds.defects import functions
from etude.tasks.generate.generators.kinds.positions import Positions

NOTE = "# Behaves as before.\n"
UNREAD = "_unread = 0\n"
SCRIPT_NOTE, SCRIPT_UNREAD = "// Behaves as before.\n", "; var unread_ = 0;"


def same(path: str, text: str) -> list[list[dict[str, Any]]]:
    """Lists of edits; fewer than two for a module without a function to write in."""
    where = Positions(text)
    tree = parse_python(text)
    variants = [[_behind(path, text, NOTE)]]
    inside: list[dict[str, Any]] = []
    for _, function in functions(tree):
        first = _first(function)
        if first is not None and first.lineno > function.lineno:
            at = where.at(first.lineno, first.col_offset)
            if not text[text.rfind("\n", 0, at) + 1 : at].strip():  # alone on its line
                inside.append({"path": path, "at": at, "old": "", "new": UNREAD + " " * first.col_offset})
    return [*variants, inside] if inside else variants


def script_same(path: str, text: str) -> list[list[dict[str, Any]]]:
    """The same of JavaScript."""
    code = Code(path, text.encode())
    bodies = [one.node.child_by_field_name("body") for one in code.functions]
    places = [_opened(code, body) for body in bodies if body is not None and body.type == "statement_block"]
    spots = sorted({len(code.source[:at].decode()) for at in places})
    inside = [{"path": path, "at": at, "old": "", "new": SCRIPT_UNREAD} for at in spots]
    return [[_behind(path, text, SCRIPT_NOTE)], *([inside] if inside else [])]


def _opened(code: Code, body: Node) -> int:
    """Behind the bracket that opens it and the directives, which must come first (`'use strict'`)."""
    at = body.start_byte + 1
    for node in body.named_children:
        directive = node.type == "expression_statement" and node.named_children[0].type == "string"
        if not directive and node.type != "comment":
            break
        if directive:
            at = node.end_byte
    return at


def _behind(path: str, text: str, note: str) -> dict[str, Any]:
    ends = "" if text.endswith("\n") else "\n"
    return {"path": path, "at": len(text), "old": "", "new": f"{ends}\n{note}"}


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt | None:
    """The first statement behind the docstring, and behind what must come first; None if it is a decorated one."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for statement in body:
        if isinstance(statement, ast.Global | ast.Nonlocal):
            continue
        return None if getattr(statement, "decorator_list", None) else statement
    return None
