"""The same of JavaScript and TypeScript: functions and classes at the top of modules, their exports in either style, and who uses what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from etude.tasks.generate.generators.bugs.code import CLASSES, FUNCTIONS, Code, Node, descendants
from etude.tasks.generate.generators.deletion.index import Defined, DefinitionIndex

DECLARATIONS = frozenset(
    ("function_declaration", "generator_function_declaration", "class_declaration", "function_signature")
    + ("abstract_class_declaration", "interface_declaration", "type_alias_declaration")
)
VALUES = (FUNCTIONS | CLASSES) - {"method_definition"}
VARIABLES = ("lexical_declaration", "variable_declaration")
LISTS = ("object", "array", "object_pattern", "named_imports", "export_clause")
_NAMES = frozenset(
    ("identifier", "property_identifier", "type_identifier", "shorthand_property_identifier")
    + ("shorthand_property_identifier_pattern",)
)
# `JSON.parse` is no use of a project's `parse`.
GLOBALS = frozenset(
    ("JSON", "Object", "Math", "Array", "String", "Number", "Promise", "Reflect", "Symbol", "Buffer", "process")
    + ("console", "Date", "assert", "path", "fs")
)


def script_index(files: Mapping[str, str]) -> DefinitionIndex:
    """Of modules by path; a definition that no module exports is private, and what is all of a module may still be a helper of others."""
    codes = {path: Code(path, text.encode()) for path, text in files.items()}
    every = [(code, node) for code in codes.values() for node in code.root.children]
    listed = frozenset(name for code, node in every if not whole(code, node) for name in exported_names(code, node))
    defined: list[Defined] = []
    rest: dict[str, frozenset[str]] = {}
    for path, code in codes.items():
        around: set[str] = set()
        for node in code.root.children:
            name = declared_name(code, node)
            if name:
                defined.append(_defined(code, node, name, listed))
            elif imports(code, node):
                around |= renamed_imports(code, node)
            else:
                around |= uses(code, node) - exported_names(code, node)
        rest[path] = frozenset(around)
    return DefinitionIndex(tuple(defined), rest, {path: imported_modules(text) for path, text in files.items()})


def imported_modules(text: str) -> frozenset[str]:
    """Last parts of the modules that a text imports or requires anywhere; a folder means its index file."""
    sources = re.findall(r"(?:\bfrom|\bimport|\b(?:require|import)\s*\()\s*['\"]([^'\"\n]+)['\"]", text)
    return frozenset(re.sub(r"\.[cm]?[jt]sx?$", "", one.rstrip("/").rpartition("/")[2]) for one in sources)


def uses(code: Code, node: Node) -> frozenset[str]:
    """Every name and property in it."""
    return frozenset(code.text(one) for one in mentions(code, node))


def mentions(code: Code, node: Node) -> Iterator[Node]:
    for one in descendants(node):
        if one.type in _NAMES:
            holder = one.parent
            owner = holder.child_by_field_name("object") if holder is not None else None
            if one.type != "property_identifier" or owner is None or code.text(owner) not in GLOBALS:
                yield one


def declared_name(code: Code, node: Node) -> str:
    """What a statement at the top defines as a function or class, exported on the spot or not; empty for others."""
    if node.type == "export_statement" and any(one.type == "default" for one in node.children):
        return ""  # the importer chooses a name
    node = bare(node)
    if node.type in DECLARATIONS:
        named = node.child_by_field_name("name")
        return code.text(named) if named is not None else ""
    if node.type in VARIABLES:
        found = [one for one in node.named_children if one.type == "variable_declarator"]
        value = found[0].child_by_field_name("value") if len(found) == 1 else None
        named = found[0].child_by_field_name("name") if found else None
        is_one = value is not None and value.type in VALUES and named is not None and named.type == "identifier"
        return code.text(named) if is_one else ""
    target, value = assigned_export(code, node)
    return target if value is not None and value.type in VALUES else ""


def assigned_export(code: Code, node: Node) -> tuple[str, Node | None]:
    """`name` and the value of `exports.name = …`, `module.exports.name = …` and `Kind.prototype.name = …`; a function that is all a module
    exports has its own name, or the file's."""
    inner = node.named_children[0] if node.type == "expression_statement" and node.named_children else None
    if inner is None or inner.type != "assignment_expression":
        return "", None
    left, right = code.text(inner.child_by_field_name("left")), inner.child_by_field_name("right")
    if left == "module.exports" and right.type in VALUES:
        named = right.child_by_field_name("name")
        stem = PurePosixPath(code.path).stem
        return (code.text(named) if named is not None else stem if stem != "index" else ""), right
    match = re.fullmatch(r"(?:(?:module\.)?exports|[\w$]+\.prototype)\.([\w$]+)", left)
    return (match[1] if match else ""), right


def exported_names(code: Code, node: Node) -> frozenset[str]:
    """Names that a statement at the top passes on, which can be taken out one by one."""
    if node.type == "export_statement" and (declaration := bare(node)) is not node:
        return frozenset((declared_name(code, declaration),)) - {""}
    target, value = assigned_export(code, node)
    found = {target} if value is not None and (value.type in VALUES or same(target, code.text(value))) else set()
    if (
        node.type in VARIABLES
        or (node.type == "expression_statement" and not target)
        or node.type == "export_statement"
    ):
        for holder in lists(node):
            for one in elements(holder):
                found |= element_names(code, one)
    return frozenset(found)


def lists(node: Node) -> Iterator[Node]:
    """Objects, arrays and lists of imports and exports in it, the outer ones, outside functions and classes."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.type in LISTS:
            yield one
        elif one.type not in FUNCTIONS and one.type not in CLASSES and one.type not in DECLARATIONS:
            waiting += one.named_children


def elements(holder: Node) -> list[Node]:
    return [one for one in holder.named_children if one.type != "comment"]


def element_names(code: Code, node: Node) -> frozenset[str]:
    """The name of an element of a list: `a`, `a: a`, `a: require('./a')`; empty for what says more, and for a second name."""
    if node.type in _NAMES:
        return frozenset((code.text(node),))
    if node.type in ("pair", "pair_pattern"):
        name = code.text(node.child_by_field_name("key")).strip("'\"")
        return frozenset((name,)) if same(name, code.text(node.child_by_field_name("value"))) else frozenset()
    if node.type in ("import_specifier", "export_specifier"):
        return (
            frozenset(code.text(one) for one in node.named_children) if len(node.named_children) == 1 else frozenset()
        )
    return frozenset()


def same(name: str, value: str) -> bool:
    """Whether a value passes on what has the name already."""
    return bool(name) and (value == name or re.fullmatch(r"require\([^()]*\)", value) is not None)


def renamed_imports(code: Code, node: Node) -> frozenset[str]:
    """What an import gives a second name: its users can't be found by name."""
    found = (one for holder in lists(node) for one in elements(holder) if not element_names(code, one))
    return frozenset(name for one in found for name in uses(code, one))


def imports(code: Code, node: Node) -> bool:
    """Whether a statement at the top only brings names in: `import …`, `const … = require(…)`, `export … from`."""
    if node.type == "import_statement":
        return True
    if node.type == "export_statement":
        return node.child_by_field_name("source") is not None
    if node.type not in VARIABLES:
        return False
    values = [one.child_by_field_name("value") for one in node.named_children if one.type == "variable_declarator"]
    return bool(values) and all(value is not None and code.text(value).startswith("require(") for value in values)


def bare(node: Node) -> Node:
    """Without `export` and `declare`."""
    while node.type in ("export_statement", "ambient_declaration"):
        inner = [one for one in node.named_children if one.type in DECLARATIONS or one.type in VARIABLES]
        inner += [one for one in node.named_children if one.type == "ambient_declaration"]
        if not inner:
            return node
        node = inner[0]
    return node


def whole(code: Code, node: Node) -> bool:
    """Whether it is a definition that is all its module exports."""
    return bool(declared_name(code, node)) and re.match(r"module\.exports\s*=[^=]", code.text(node)) is not None


def _defined(code: Code, node: Node, name: str, listed: frozenset[str]) -> Defined:
    function = next((one for one in descendants(node) if one.type in VALUES or one.type in DECLARATIONS), node)
    if (parameters := function.child_by_field_name("parameters")) is not None:
        signature = f"{name}{code.text(parameters)}"
    else:
        signature = code.text(function).partition("{")[0].strip() if function.type in CLASSES else name
    first, last = node.start_point[0] + 1, node.end_point[0] + 1
    source, helper = code.text(node), name not in listed
    private = helper and not whole(code, node)
    return Defined(
        code.path,
        name,
        last - first + 1,
        uses(code, node) - {name},
        signature,
        _comment(code, node),
        source,
        private,
        helper,
    )


def _comment(code: Code, node: Node) -> str:
    """The words of the comments right above."""
    above: list[str] = []
    while (
        (one := node.prev_sibling) is not None and one.type == "comment" and one.end_point[0] + 1 == node.start_point[0]
    ):
        above.insert(0, code.text(one))
        node = one
    lines = (re.sub(r"^\s*(/\*+|\*/|//+|\*)|\*/\s*$", "", line).strip() for line in "\n".join(above).split("\n"))
    return "\n".join(lines).strip()
