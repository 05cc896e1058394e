"""What a Python project defines at the top of its modules, and who uses what, by name: which definitions make up a feature.

Names are not resolved to modules: two things of one name count as one, and an attribute of that name counts as a use. That errs on the
side of leaving features out, never on that of leaving half of one behind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from etude.core.bounded_python import parse_python

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Defined:
    """A function or class at the top of a module. `signature`: its own, or the class line; `summary`: of its docstring; `source`: its lines;
    `private`: nothing outside should use it; `helper`: it goes with the last that uses it."""

    path: str
    name: str
    lines: int
    uses: frozenset[str]
    signature: str
    doc: str
    source: str = ""
    private: bool = False
    helper: bool = False

    @property
    def open(self) -> bool:
        """Whether a request may name it."""
        return not self.private and not self.name.startswith("_")

    @property
    def summary(self) -> str:
        return " ".join(self.doc.split("\n\n")[0].split())


@dataclass(frozen=True)
class DefinitionIndex:
    """`rest`: names that the code around the definitions of a module uses (imports, lists of exports and registrations aside); `imports`: by
    module, the names that it imports and the last parts of the modules that it imports or imports from."""

    defined: tuple[Defined, ...]
    rest: Mapping[str, frozenset[str]]
    imports: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def definitions_of(self, names: Iterable[str]) -> list[Defined]:
        wanted = set(names)
        return [one for one in self.defined if one.name in wanted]

    def users(self, name: str) -> frozenset[str]:
        return self._users.get(name, frozenset())

    @cached_property
    def _users(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for one in self.defined:
            for name in one.uses - {one.name}:
                found.setdefault(name, set()).add(one.name)
        return {name: frozenset(users) for name, users in found.items()}

    @cached_property
    def _run_on_import(self) -> frozenset[str]:
        return frozenset().union(*self.rest.values())

    def feature(self, anchors: Iterable[str], most: int) -> frozenset[str]:
        """The anchors, all that uses them, and private helpers that nothing else uses. Empty: it is tied up with too much."""
        chosen = set(anchors)
        fresh = set(chosen)
        while fresh:
            if fresh & self._run_on_import:
                return frozenset()
            fresh = set().union(*(self.users(name) for name in fresh)) - chosen
            chosen |= fresh
            if len(chosen) > most:
                return frozenset()
        return self.with_helpers(chosen)

    def with_helpers(self, names: Iterable[str]) -> frozenset[str]:
        """With the private helpers that nothing else uses."""
        chosen = set(names)
        while helpers := self._helpers(chosen):
            chosen |= helpers
        return frozenset(chosen)

    def _helpers(self, chosen: set[str]) -> set[str]:
        found = set()
        for one in self.defined:
            if one.helper and one.name not in chosen and one.name not in self._run_on_import:
                users = self.users(one.name)
                if users and users <= chosen:
                    found.add(one.name)
        return found


def index(files: Mapping[str, str]) -> DefinitionIndex:
    """Of modules by path; those that do not parse are left to the caller, who must not list them."""
    defined: list[Defined] = []
    rest: dict[str, frozenset[str]] = {}
    imports: dict[str, frozenset[str]] = {}
    for path, text in files.items():
        around: list[ast.stmt] = []
        tree = parse_python(text)
        imports[path] = imported_names(tree)
        for node in tree.body:
            if isinstance(node, Definition):
                defined.append(_defined(path, node, text))
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                around.append(node)
        rest[path] = frozenset().union(*(uses(node) - listed_names(node) for node in around))
    return DefinitionIndex(tuple(defined), rest, imports)


def imported_names(tree: ast.Module) -> frozenset[str]:
    """What it imports anywhere: names, and last parts of modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name.rpartition(".")[2] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").rpartition(".")[2])
    return frozenset(found - {""})


def uses(node: ast.AST) -> frozenset[str]:
    """Every name, attribute and imported name in it."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            found.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            found.add(inner.attr)
        elif isinstance(inner, ast.alias):
            found |= {inner.name.split(".")[-1], inner.asname or ""}
    return frozenset(found - {""})


def listed_names(node: ast.AST) -> frozenset[str]:
    """Names that stand as plain elements of a list, tuple, set or dictionary which is assigned: exports and registrations. They can be
    taken out one by one."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else None
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return frozenset(each.id for each in value.elts if isinstance(each, ast.Name))
    if isinstance(value, ast.Dict):
        return frozenset(each.id for each in value.values if isinstance(each, ast.Name))
    return frozenset()


def _defined(path: str, node: Definition, text: str) -> Defined:
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    if isinstance(node, ast.ClassDef):
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        signature = f"class {node.name}" + (f"({bases})" if bases else "")
        signature += f", made by {node.name}({_arguments(made[0])})" if made else ""
    else:
        signature = f"{node.name}({ast.unparse(node.args)})"
    lines = (node.end_lineno or first) - first + 1
    source = "\n".join(text.split("\n")[first - 1 : node.end_lineno])
    private = node.name.startswith("_") and not node.name.startswith("__")
    return Defined(
        path, node.name, lines, uses(node), signature, ast.get_docstring(node) or "", source, private, private
    )


def _arguments(method: ast.FunctionDef) -> str:
    """Without self."""
    return ast.unparse(method.args).partition(",")[2].strip()
