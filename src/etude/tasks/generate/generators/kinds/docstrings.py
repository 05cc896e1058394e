"""Docstrings of a module: which tell by examples what the code does, and the module without them."""

from __future__ import annotations

import ast
import doctest
import re
from dataclasses import dataclass
from typing import Any

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generators.kinds.positions import Positions
from etude.tasks.graders.documented import Documented, signature, symbols

FEWEST_EXAMPLES = 1


@dataclass(frozen=True)
class Docstring:
    """What a docstring of the module says. `examples`: how many it has."""

    name: str
    text: str
    examples: int


def documented_names(text: str) -> list[Docstring]:
    """The public names whose docstrings have examples, in the order in which they stand. Raises SyntaxError."""
    found: list[Docstring] = []
    for name, node in symbols(parse_python(text)).items():
        doc = ast.get_docstring(node) or ""
        try:
            examples = doctest.DocTestParser().get_examples(doc)
        except ValueError:
            continue  # it can't be read as examples: not one to ask for
        if len(examples) >= FEWEST_EXAMPLES and not any(one.options.get(doctest.SKIP) for one in examples):
            found.append(Docstring(name, doc, len(examples)))
    return found


def without(text: str, names: set[str]) -> str:
    """The module without the docstrings of these names, everything else byte by byte."""
    where = Positions(text)
    nodes = symbols(parse_python(text))
    for name in sorted(names, key=lambda name: -nodes[name].body[0].lineno):
        body = nodes[name].body
        start, end = where.span(body[0])
        if len(body) == 1:
            text = f"{text[:start]}pass{text[end:]}"
            continue
        start = text.rfind("\n", 0, start) + 1
        end = text.find("\n", end) + 1
        text = text[:start] + text[end:].lstrip("\n") if text[end : end + 1] == "\n" else text[:start] + text[end:]
    return text


def facts(node: Documented, doc: str) -> dict[str, Any]:
    """What a reader must know of a name: what its own documentation says of parameters, defaults and exceptions."""
    if isinstance(node, ast.ClassDef):
        return {}
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    prose = "\n".join(line for line in doc.splitlines() if not line.lstrip().startswith((">>>", "...")))
    parameters = [
        one.arg for one in arguments if one.arg not in ("self", "cls") and len(one.arg) > 2 and _occurs(one.arg, prose)
    ]
    raised = {
        one.exc.func.id if isinstance(one.exc, ast.Call) and isinstance(one.exc.func, ast.Name) else ""
        for one in ast.walk(node)
        if isinstance(one, ast.Raise)
    }
    return {
        "parameter": parameters,
        "exception": sorted(name for name in raised if name and _occurs(name, doc)),
        "signature": signature(node),
    }


def page(module: str, docs: dict[str, str], facts: dict[str, dict[str, Any]]) -> str:
    """A reference of these names in Markdown, made of their docstrings."""
    parts = [f"# `{module}`\n"]
    for name, text in docs.items():
        parts.append(f"\n## `{facts[name]['signature']}`\n\n{_fenced(text)}")
    return "".join(parts)


def _fenced(text: str) -> str:
    """Examples in blocks of their own, prose between them."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        starts = line.lstrip().startswith(">>>")
        if starts and not inside:
            out.append("```pycon")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join([*out, "```"] if inside else out) + "\n"


def _occurs(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text) is not None
