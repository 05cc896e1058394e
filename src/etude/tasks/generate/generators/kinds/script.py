"""JavaScript modules for the generators that read Python by `ast`: what a change could have added, and defects on single lines.

The same syntax trees and operators as `bugs`; their edits are given in characters of the text, as graders' edits are.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.listing import sources
from etude.tasks.generate.generators.bugs.operator import sound
from etude.tasks.generate.generators.bugs.registry import OPERATORS
from etude.tasks.generate.generators.kinds.defects import Defect
from etude.tasks.generate.generators.kinds.modules import Tested, nearest
from etude.tasks.generate.generators.kinds.slices import CodeSlice, join_slices

_DEFINES = frozenset(
    ("function_declaration", "generator_function_declaration", "lexical_declaration", "variable_declaration")
)
_ASSIGNS = frozenset(("expression_statement", "export_statement"))  # exports.f = function …, export function f …
SHORT = 30  # characters of code that a sentence about it may quote


def script_tested(project: InstalledProject) -> Iterator[Tested]:
    """Each module of hand-written code with the test files concerned, the nearest first; a runner that tells no files apart runs all of
    them. A package's tests ask its modules through its main one: `others` are all that are left."""
    concern = Concern(project)
    every = project.baseline.by_file or project.environment.tests.files
    for path, code in sources(project.files).items():
        if code.language == "javascript" and code.functions:
            names = [function.name for function in code.functions]
            tests = concern.files({path: names}) or project.environment.tests.files
            near = nearest(path, (test for test in tests if test in project.texts), project.files)
            if near:
                yield Tested(path, path, near, tuple(test for test in every if test not in near))


def script_imported(place: Tested, test: str) -> str:
    """As `require` and `import` take it; TypeScript without its suffix."""
    path = posixpath.relpath(place.path, posixpath.dirname(test) or ".")
    path = re.sub(r"\.[cm]?tsx?$", "", path)
    return path if path.startswith("..") else f"./{path}"


def script_defects(path: str, text: str) -> list[Defect]:
    """Every defect that is one edit within a line of a named function."""
    code = Code(path, text.encode())
    if "\r" in text or code.root.has_error:
        return []
    found: dict[tuple[int, str, str], Defect] = {}
    for operator in OPERATORS:
        for site in operator.propose_sites(code):
            if len(site.edits) != 1 or not site.function or not sound(code, site):
                continue
            edit = site.edits[0]
            at = len(code.source[: edit.start].decode())
            old, new = code.source[edit.start : edit.end].decode(), edit.text.decode()
            if "\n" not in old and "\n" not in new:
                one = Defect(path, at, old, new, site.line, site.operator, site.function, _describe_edit(old, new))
                found.setdefault((at, old, new), one)
    return sorted(found.values(), key=lambda one: (one.at, one.new))


def script_slices(path: str, text: str, fewest: int, most: int) -> list[CodeSlice]:
    """Runs of neighbouring functions at the top of the module that make up `fewest` to `most` lines each."""
    code = Code(path, text.encode())
    found: list[CodeSlice] = []
    run: list[CodeSlice] = []
    for node in code.root.children:
        if node.type == "comment":
            continue
        names = _defined(code, node)
        run = [*run, _part(code, node, names)] if names else []
        if not run:
            continue
        if (whole := join_slices(run)).lines > most:
            run = run[-1:] if run[-1].lines <= most else []
        elif whole.lines >= fewest:
            found.append(whole)
            run = []
    return found


def _describe_edit(old: str, new: str) -> str:
    if len(old) <= SHORT and len(new) <= SHORT and old and new:
        return f"`{new}` stands where `{old}` is right"
    return f"`{old[:SHORT]}` is missing" if old and not new else "it comes out otherwise than before"


def _defined(code: Code, node: Node) -> tuple[str, ...]:
    """Names of the functions that a statement of the module holds; none for other statements."""
    if node.type not in _DEFINES and node.type not in _ASSIGNS:
        return ()
    inside = [one for one in code.functions if node.start_byte <= one.node.start_byte < node.end_byte]
    return tuple(one.name for one in inside if "." not in one.name)


def _part(code: Code, node: Node, names: tuple[str, ...]) -> CodeSlice:
    """With the comments right above and the empty lines behind."""
    first, last = node.start_point[0] + 1, node.end_point[0] + 1
    above = node.prev_sibling
    while above is not None and above.type == "comment" and above.end_point[0] + 2 == first:
        if above.prev_sibling is not None and above.prev_sibling.end_point[0] == above.start_point[0]:
            break  # it follows code on its line
        first, above = above.start_point[0] + 1, above.prev_sibling
    lines = code.source.splitlines()
    while last < len(lines) and not lines[last].strip():
        last += 1
    return CodeSlice(code.path, first, last, names)
