"""Renames a function or class everywhere. Only a name that means this one thing in the whole project can be renamed by its spelling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generators.concrete import transform_source
from etude.tasks.generate.generators.refactor.sources import RefactorSymbol, Sources
from etude.tasks.graders.canonical import DEFINITION, Program, exports, imported_bindings

SYNONYMS = {
    "get": "fetch",
    "fetch": "load",
    "make": "build",
    "build": "assemble",
    "create": "make",
    "parse": "read",
    "read": "load",
    "write": "emit",
    "format": "render",
    "is": "looks",
    "to": "into",
    "from": "out_of",
    "convert": "translate",
    "find": "locate",
    "check": "verify",
    "load": "read",
    "dump": "write",
    "split": "divide",
    "join": "combine",
    "remove": "drop",
    "add": "append",
    "iter": "walk",
    "error": "failure",
    "exception": "failure",
}


def new_name(subject: RefactorSymbol, taken: frozenset[str]) -> str:
    """Another word for the first or last that has one; where none has, one more word. Raises CandidateRejected where all are taken."""
    name = subject.name
    camel = bool(re.match(r"[A-Z]", name))
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name) if camel else name.split("_")
    candidates: list[str] = []
    for at in [*range(len(words))]:
        if other := SYNONYMS.get(words[at].lower()):
            word = "".join(part.title() for part in other.split("_")) if camel else other
            candidates.append(("" if camel else "_").join([*words[:at], word, *words[at + 1 :]]))
    candidates += [f"Base{name}", f"Plain{name}"] if camel else [f"compute_{name}", f"do_{name}"]
    free = [each for each in candidates if each not in taken]
    if not free:
        raise CandidateRejected(f"no free name was found for {name}")
    return free[0]


def rename_symbol(sources: Sources, subject: RefactorSymbol, new: str) -> dict[str, str]:
    """The files that change. Raises CandidateRejected."""
    old = subject.name
    paths = sources.files_with_word(old)
    for path in paths:
        if path.endswith(".py"):
            _require_one_meaning(sources, path, subject)
    if not any(_uses(sources.program.trees[sources.modules[path]], old) for path in paths if path in sources.modules):
        raise CandidateRejected("no module uses it: to rename its definition would be all")
    changed: dict[str, str] = {}
    for path in paths:
        text = sources.project.files[path]
        after = _python(text, old, new) if path.endswith(".py") else prose(text, old, new)
        if after != text:
            changed[path] = after
    return changed


def _require_one_meaning(sources: Sources, path: str, subject: RefactorSymbol) -> None:
    """Raises CandidateRejected for a use of the word that is not a use of the thing."""
    made, name = sources.program, sources.python[path]
    for what in other_meanings(made, name, subject):
        raise CandidateRejected(f"`{subject.name}` means something else too: {what} in {path}")


def other_meanings(made: Program, module: str, subject: RefactorSymbol) -> Iterator[str]:
    """Uses of the word that are none of the thing."""
    old, thing, tree = subject.name, f"{subject.module}.{subject.name}", made.trees[module]
    local = {
        key: value
        for node in ast.walk(tree)
        for key, value in imported_bindings(node, module, module in made.packages).items()
    }
    scope = {**made.bound[module], **local}
    definitions = [node for node in tree.body if isinstance(node, DEFINITION) and node.name == old]
    if len(definitions) != (module == subject.module):
        yield "a definition"
    for node in ast.walk(tree):
        if isinstance(node, DEFINITION) and node.name == old and node not in definitions:
            yield "a definition within"
        elif isinstance(node, ast.arg | ast.keyword) and node.arg == old:
            yield "a parameter"
        elif isinstance(node, ast.Name) and node.id == old:
            if not isinstance(node.ctx, ast.Load) or made.resolve_name(scope.get(old, "")) != thing:
                yield "a variable"
        elif isinstance(node, ast.Attribute) and node.attr == old and _dotted(made, scope, node) != thing:
            yield "an attribute"
        elif isinstance(node, ast.alias) and old in (node.asname, *node.name.split(".")):
            bound = import_alias(made, tree, module, node)
            if node.asname == old or made.resolve_name(bound) != thing:
                yield "an import"
    if not distinct(old) and _strings(tree, old) != exports(tree).count(old):
        yield "a string"


def _uses(tree: ast.Module, name: str) -> bool:
    words = [getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(tree)]
    aliases = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return name in words or name in aliases or name in exports(tree)


def _strings(tree: ast.Module, word: str) -> int:
    return sum(isinstance(node, ast.Constant) and node.value == word for node in ast.walk(tree))


def import_alias(made: Program, tree: ast.Module, module: str, alias: ast.alias) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and alias in node.names:
            return imported_bindings(node, module, module in made.packages).get(alias.asname or alias.name, "")
    return ""


def _dotted(made: Program, scope: dict[str, str], node: ast.expr) -> str:
    """What a chain of attributes means; empty where it does not begin at a global name."""
    if isinstance(node, ast.Name):
        return made.resolve_name(scope.get(node.id, ""))
    if isinstance(node, ast.Attribute):
        before = _dotted(made, scope, node.value)
        return made.resolve_name(f"{before}.{node.attr}") if before in made.trees else ""
    return ""


def distinct(name: str) -> bool:
    """Whether the word is no word of English, so that prose with it speaks of the code."""
    return "_" in name or bool(re.search(r"[a-z][A-Z]", name))


def prose(text: str, old: str, new: str) -> str:
    """Mentions of the thing: the word wherever it is distinct, else where it is called, dotted or quoted as code."""
    name = re.escape(old)
    pattern = rf"\b{name}\b" if distinct(old) else rf"\b{name}\b(?=\()|(?<=`){name}(?=`)|(?<=\w\.){name}\b"
    return re.sub(pattern, new, text)


def _python(text: str, old: str, new: str) -> str:
    return transform_source(text, _Rename(old, new))


class _Rename(cst.CSTTransformer):
    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.old, self.new = old, new

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=self.new) if updated_node.value == self.old else updated_node

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        value = updated_node.value
        if (
            updated_node.raw_value == self.old
        ):  # an entry of __all__: in other strings the word alone would be another meaning
            return updated_node.with_changes(value=value.replace(self.old, self.new))
        return updated_node.with_changes(value=prose(value, self.old, self.new))

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return updated_node.with_changes(value=prose(updated_node.value, self.old, self.new))

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=prose(updated_node.value, self.old, self.new))
