"""Moves a function or class to another module: its imports go along, who used it imports it from there, and the old place forgets it."""

from __future__ import annotations

import ast
import builtins
import re

import libcst as cst

from etude.core.bounded_python import parse_python
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generators.concrete import concrete, transform_source
from etude.tasks.generate.generators.refactor.sources import RefactorSymbol, Sources
from etude.tasks.graders.canonical import DEFINITION, Program, exports, imported_bindings, origin, top


def targets(sources: Sources, subject: RefactorSymbol) -> list[str]:
    """Paths of modules in the same folder, in their order, and of a new one."""
    folder, _, file = subject.path.rpartition("/")
    siblings = [
        path
        for path in sources.modules
        if path.rpartition("/")[0] == folder and path != subject.path and not path.rpartition("/")[2].startswith("_")
    ]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", subject.name).lower()
    new = "/".join(filter(None, [folder, f"{snake}_support.py"]))
    return [*siblings, *([] if new in sources.project.files or not folder else [new])]


def move_symbol(sources: Sources, subject: RefactorSymbol, target_path: str) -> dict[str, str]:
    """The files that change. Raises CandidateRejected."""
    made, name = sources.program, subject.name
    target = target_module(subject.module, target_path)
    paths = sources.files_with_word(name)
    _require_movable(sources, subject, target, paths)
    needs = _needs(sources, subject, target)
    _require_no_circle(made, subject, target, needs, paths, sources)
    old_text = sources.project.files[subject.path]
    cut = _Cut(name)
    changed = {subject.path: transform_source(old_text, cut)}
    assert cut.found is not None
    changed[target_path] = _with(
        sources.project.files.get(target_path, ""), cut.found, needs, name in exports(made.trees[subject.module]), name
    )
    for path in paths:
        if path in (subject.path, target_path):
            continue
        text = sources.project.files[path]
        if path.endswith(".py"):
            text = transform_source(
                text, _MoveImports(sources.python[path], path.endswith("__init__.py"), subject, target)
            )
        text = re.sub(rf"\b{re.escape(subject.module)}\.{name}\b", f"{target}.{name}", text)
        if text != sources.project.files[path]:
            changed[path] = text
    return changed


def target_module(module: str, path: str) -> str:
    return ".".join(filter(None, [module.rpartition(".")[0], path.rpartition("/")[2].removesuffix(".py")]))


def _require_movable(sources: Sources, subject: RefactorSymbol, target: str, paths: list[str]) -> None:
    """Raises CandidateRejected where more than imports would have to change."""
    made, name = sources.program, subject.name
    thing = f"{subject.module}.{name}"
    if subject.path.endswith("__init__.py"):
        raise CandidateRejected("a package's own file has it: what is there is the package's interface")
    body = made.trees[subject.module].body
    definitions = [node for node in body if isinstance(node, DEFINITION) and node.name == name]
    if len(definitions) != 1:
        raise CandidateRejected(f"{subject.module} defines it {len(definitions)} times")
    if name in made.bound.get(target, {}):
        raise CandidateRejected(f"{target} has a `{name}` already")
    for node in body:
        if node is not definitions[0] and any(
            isinstance(each, ast.Name) and each.id == name for each in ast.walk(node)
        ):
            raise CandidateRejected(f"{subject.module} itself uses it")
    for path in (path for path in paths if path.endswith(".py")):
        module = sources.python[path]
        for node in ast.walk(made.trees[module]):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                if made.resolve_name(made.bound[module].get(name, "")) == thing:
                    raise CandidateRejected(f"{path} gets it by a star import")
            if isinstance(node, ast.Attribute) and node.attr == name:
                dotted = ast.unparse(node.value)
                head, _, tail = dotted.partition(".")
                inner = [
                    imported_bindings(each, module, module in made.packages) for each in ast.walk(made.trees[module])
                ]
                meant = next((found[head] for found in inner if head in found), "")
                if made.resolve_name(".".join(filter(None, [meant, tail]))) == subject.module:
                    raise CandidateRejected(f"{path} uses it as an attribute of its module")


def _needs(sources: Sources, subject: RefactorSymbol, target: str) -> list[str]:
    """Imports, absolute, by which the moved definition finds what it uses. Raises CandidateRejected for what can't go along."""
    made, module = sources.program, subject.module
    tree = made.trees[module]
    node = next(each for each in tree.body if isinstance(each, DEFINITION) and each.name == subject.name)
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    if any(isinstance(each, ast.Global) for each in ast.walk(node)):
        raise CandidateRejected("it writes globals of its module")
    if any(isinstance(each, ast.ImportFrom) and each.level for each in ast.walk(node)):
        raise CandidateRejected("it imports by dots")
    if used & {"__name__", "__file__", "__package__", "__path__"}:
        raise CandidateRejected("it asks for the name or place of its module")
    plain = {id(each) for each in tree.body}
    found: list[str] = []
    bound, target_bound = made.bound[module], made.bound.get(target, {})
    futures = ["from __future__ import annotations"] if _future(tree) else []
    if target in made.trees and _future(made.trees[target]) != bool(futures):
        raise CandidateRejected(f"{target} reads annotations otherwise")
    for name in sorted(used - {subject.name}):
        if name not in bound or (name in dir(builtins) and name not in bound):
            continue
        if name in target_bound:
            if made.resolve_name(target_bound[name]) != made.resolve_name(bound[name]):
                raise CandidateRejected(f"`{name}` means something else in {target}")
            continue
        found.append(_statement(made, module, name, plain))
    return futures + found if target not in made.trees else found


def _statement(made: Program, module: str, name: str, plain: set[int]) -> str:
    for node in top(made.trees[module].body):
        if name not in imported_bindings(node, module, module in made.packages):
            continue
        if id(node) not in plain:
            raise CandidateRejected(f"`{name}` is imported under a condition")
        if isinstance(node, ast.ImportFrom):
            alias = next(each for each in node.names if (each.asname or each.name) == name)
            clause = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
            return f"from {origin(node, module, module in made.packages)} import {clause}"
        assert isinstance(node, ast.Import)
        alias = next(each for each in node.names if (each.asname or each.name.split(".")[0]) == name)
        return f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
    if made.bound[module][name] != f"{module}.{name}":
        raise CandidateRejected(f"`{name}` comes by a star import")
    return f"from {module} import {name}"


def _future(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(a.name == "annotations" for a in node.names)
        for node in tree.body
    )


def _require_no_circle(
    made: Program, subject: RefactorSymbol, target: str, needs: list[str], paths: list[str], sources: Sources
) -> None:
    """The target must not come to import what imports it."""
    edges = {name: _imports(made, name) for name in made.trees}
    new = {made.split(line.split()[1])[0] for line in needs}
    edges[target] = edges.get(target, set()) | (new - {""})
    for path in paths:
        if path.endswith(".py") and sources.python[path] not in (subject.module, target):
            edges[sources.python[path]].add(target)
    seen: set[str] = set()
    queue = [*edges[target]]
    while queue:
        name = queue.pop()
        if name == target:
            raise CandidateRejected(f"{target} would come to import itself through others")
        if name not in seen:
            seen.add(name)
            queue += edges.get(name, ())


def _imports(made: Program, module: str) -> set[str]:
    found: set[str] = set()
    for node in top(made.trees[module].body):
        for meant in imported_bindings(node, module, module in made.packages).values():
            found.add(made.split(meant)[0])
        if isinstance(node, ast.Import):
            found.update(made.split(alias.name)[0] for alias in node.names)
    return found - {"", module}


class _Cut(cst.CSTTransformer):
    """Takes the definition out, and its name out of `__all__`. `found`: the definition as it stood."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.found: cst.FunctionDef | cst.ClassDef | None = None
        self.depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.depth += 1

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef):
        return self._left(original_node, updated_node)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef):
        return self._left(original_node, updated_node)

    def _left(self, original: cst.FunctionDef | cst.ClassDef, updated: cst.FunctionDef | cst.ClassDef):
        self.depth -= 1
        if self.depth or original.name.value != self.name:
            return updated
        self.found = original
        return cst.RemoveFromParent()

    def leave_Element(self, original_node: cst.Element, updated_node: cst.Element):
        value = updated_node.value
        is_name = self.depth == 0 and isinstance(value, cst.SimpleString) and value.evaluated_value == self.name
        return cst.RemoveFromParent() if is_name else updated_node


class _MoveImports(cst.CSTTransformer):
    """`from <old place> import name` becomes one from the new place; the other names stay."""

    def __init__(self, module: str, package: bool, subject: RefactorSymbol, target: str) -> None:
        super().__init__()
        self.module, self.package, self.subject, self.target = module, package, subject, target

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine):
        small = updated_node.body[0]
        if (
            len(updated_node.body) > 1
            or not isinstance(small, cst.ImportFrom)
            or isinstance(small.names, cst.ImportStar)
        ):
            return updated_node
        (node,) = parse_python(cst.Module([]).code_for_node(small).strip()).body
        moved_names = [each for each in small.names if each.evaluated_name == self.subject.name]
        if not moved_names or not isinstance(node, ast.ImportFrom):
            return updated_node
        if origin(node, self.module, self.package) != self.subject.module:
            return updated_node
        names = [
            f"{each.evaluated_name} as {each.evaluated_alias}" if each.evaluated_alias else each.evaluated_name
            for each in moved_names
        ]
        new = cst.parse_statement(f"from {self.target} import {', '.join(names)}\n")
        kept = [each for each in small.names if each not in moved_names]
        if not kept:
            assert isinstance(new, cst.SimpleStatementLine)
            return new.with_changes(
                leading_lines=updated_node.leading_lines, trailing_whitespace=updated_node.trailing_whitespace
            )
        if small.lpar is None:  # a comma behind the last would need parentheses
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return cst.FlattenSentinel([updated_node.with_changes(body=[small.with_changes(names=kept)]), new])


def _with(text: str, moved: cst.FunctionDef | cst.ClassDef, needs: list[str], exported: bool, name: str) -> str:
    """The target with the definition at its end, and its imports behind those that are there."""
    try:
        module = concrete(text or f'"""About `{name}`."""\n')
    except (SyntaxError, cst.ParserSyntaxError) as error:
        raise CandidateRejected(f"the file that it moves to can't be read: {type(error).__name__}") from error
    at = 0
    for number, node in enumerate(module.body):
        small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
        doc = not number and isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
        if not doc and not isinstance(small, cst.Import | cst.ImportFrom):
            break
        at = number + 1
    lines = [cst.parse_statement(line + "\n") for line in needs]
    if lines and not text:
        lines[0] = lines[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    blank = [cst.EmptyLine(indent=False)] * 2
    comments = [line for line in moved.leading_lines if line.comment]
    placed = moved.with_changes(leading_lines=[*blank, *comments])
    code = module.with_changes(body=[*module.body[:at], *lines, *module.body[at:], placed]).code
    return _exported(code, name) if exported and exports(parse_python(code)) else code


def _exported(code: str, name: str) -> str:
    class Add(cst.CSTTransformer):
        def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
            target, value = updated_node.targets[0].target, updated_node.value
            if isinstance(target, cst.Name) and target.value == "__all__" and isinstance(value, cst.List | cst.Tuple):
                elements = [*value.elements, cst.Element(cst.SimpleString(f'"{name}"'))]
                return updated_node.with_changes(value=value.with_changes(elements=elements))
            return updated_node

    return transform_source(code, Add())
