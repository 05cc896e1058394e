"""Documentation as a reader finds it: what is said about each name, in docstrings or on a page; and what it must tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from etude.core.bounded_python import parse_python

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
NAME = re.compile(r"`?([A-Za-z_][\w.]*)\s*(\(.*)?")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def symbols(tree: ast.Module) -> dict[str, Documented]:
    """Public functions and classes of a module, and the public methods of the latter, by name as a reader writes it."""
    found: dict[str, Documented] = {}
    for node in tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            found[node.name] = node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                    found[f"{node.name}.{inner.name}"] = inner
    return found


def docstrings(text: str) -> dict[str, str]:
    """Raises SyntaxError, ValueError."""
    return {name: ast.get_docstring(node) or "" for name, node in symbols(parse_python(text)).items()}


def bare(text: str) -> str:
    """A module's code with nothing said in it: equal for two texts that differ in docstrings and comments alone."""
    tree = parse_python(text)
    for node in ast.walk(tree):
        if isinstance(node, Documented | ast.Module) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, Documented):  # a body of a docstring alone is one of `pass`
            node.body = [one for one in node.body if not isinstance(one, ast.Pass)]
    return ast.dump(tree)


def sections(page: str) -> dict[str, tuple[str, str]]:
    """Of a page in Markdown: by name its heading and the text under it. `### f(a, b=1)` is about `f`."""
    found: dict[str, tuple[str, str]] = {}
    name, heading, lines, fence = "", "", [], ""
    for line in page.splitlines():
        mark = FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        title = None if fence else HEADING.match(line)
        if title is None:
            lines.append(line)
            continue
        found.setdefault(name, (heading, "\n".join(lines)))
        about = NAME.match(title[2])
        name, heading, lines = (about[1] if about else title[2]), title[2].strip("`"), []
    found.setdefault(name, (heading, "\n".join(lines)))
    return found


def remove_fences(text: str) -> str:
    """Without the lines that open and close blocks, which would be read as output."""
    return "\n".join("" if FENCE.match(line) else line for line in text.splitlines())


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """`f(a, b=1)` without annotations, in one spelling."""
    for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if part is not None:
            part.annotation = None
    return f"{node.name}({ast.unparse(node.args)})"


def same_signature(heading: str, wanted: str) -> bool:
    """Whether a heading states this signature, however it is spaced."""
    try:
        (node,) = parse_python(
            f"def {heading.strip().strip('`').rsplit('.', 1)[-1] if '(' not in heading else heading}: pass"
        ).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    return isinstance(node, ast.FunctionDef) and signature(node) == wanted


def missing_facts(doc: str, facts: Mapping[str, Any]) -> list[str]:
    """Which of the facts a reader would not find: parameters, defaults, exceptions by their names."""
    missing = [
        f"the {kind} {word}"
        for kind in ("parameter", "exception")
        for word in facts.get(kind, ())
        if not _word(word, doc)
    ]
    missing += [
        f"the default {name}={value}" for name, value in facts.get("default", {}).items() if not _word(value, doc)
    ]
    return missing


def dead_links(page: str, path: str, files: Sequence[str]) -> list[str]:
    """Links to files that are not there, and to headings that the page lacks. Other sites are not asked."""
    anchors = {_anchor(match[2]) for line in page.splitlines() if (match := HEADING.match(line))}
    folder = PurePosixPath(path).parent
    dead: list[str] = []
    for target in LINK.findall(page):
        place, _, anchor = target.partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        if (not place and anchor not in anchors) or (place and _joined(folder, place) not in files):
            dead.append(target)
    return dead


def _word(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text) is not None


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _joined(folder: PurePosixPath, place: str) -> str:
    parts: list[str] = []
    for part in (folder / place).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
