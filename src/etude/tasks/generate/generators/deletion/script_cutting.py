"""The same of JavaScript and TypeScript, by concrete syntax trees: definitions leave with imports and exports, test files lose their tests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from etude.tasks.generate.generators.bugs.code import Code, Node, ancestors
from etude.tasks.generate.generators.deletion.script_index import (
    assigned_export,
    declared_name,
    element_names,
    elements,
    exported_names,
    imports,
    lists,
    mentions,
    uses,
)

Cut = tuple[int, int]  # bytes from, to
_TESTS = re.compile(r"(test|it|describe|context|suite|specify)\b|\w+\.test\b")
_FUNCTION = ("arrow_function", "function_expression", "generator_function")


def script_without(path: str, text: str, names: Collection[str]) -> str | None:
    """The module without these functions and classes; None where nothing but imports would be left. Raises SyntaxError where that would
    not parse, or still uses them."""
    code = Code(path, text.encode())
    removed = frozenset(names)
    left = _made(code, _cuts(code, removed), removed)
    return left if left == text or any(_says(one) for one in _statements(path, left)) else None


def _statements(path: str, text: str) -> list[tuple[Code, Node]]:
    code = Code(path, text.encode())
    return [(code, node) for node in code.root.named_children if node.type != "comment"]


def _says(one: tuple[Code, Node]) -> bool:
    """Whether a statement does more than to import, or to be a directive."""
    code, node = one
    return not imports(code, node) and not (node.named_children and node.named_children[0].type == "string")


def script_tests_without(path: str, text: str, names: Collection[str]) -> str | None:
    """The test file without the tests that use these names; None where it can't do without them, or nothing would be left."""
    code = Code(path, text.encode())
    removed = frozenset(names)
    every = [node for node in code.nodes if _is_test(code, node)]
    gone, removed = _gone(code, removed)
    if gone is None:
        return None
    whole = {node.id for node in gone}
    for node in reversed(every):  # inner ones first
        within = [one for one in every if one.id != node.id and _holds(node, one)]
        if within and all(one.id in whole for one in within):
            whole.add(node.id)
    left = [node for node in every if node.id not in whole and not any(up.id in whole for up in ancestors(node))]
    if not left:
        return None
    spans = [_statement(code, node) for node in every if node.id in whole]
    try:
        return _made(code, [*_cuts(code, removed), *spans], removed)
    except SyntaxError:
        return None


def _gone(code: Code, names: frozenset[str]) -> tuple[list[Node] | None, frozenset[str]]:
    """The innermost tests around each mention, and the names with the file's own helpers that use them; None: something else does."""
    while True:
        found: dict[int, Node] = {}
        helpers: set[str] = set()
        for node in mentions(code, code.root):
            if code.text(node) not in names:
                continue
            up = [node, *ancestors(node)]
            test = next((one for one in up if _is_test(code, one)), None)
            if test is not None:
                found[test.id] = test
                continue
            top = up[-2]  # the last is the root
            name = declared_name(code, top)
            if name:
                helpers.add(name)
            elif not imports(code, top):
                return None, names
        if helpers <= names:
            return list(found.values()), names
        names |= helpers


def _is_test(code: Code, node: Node) -> bool:
    """A statement that calls `test`, `it`, `describe`, `t.test` and the like with a function."""
    if node.type != "expression_statement":
        return False
    call = node.named_children[0]
    if call.type == "await_expression":
        call = call.named_children[0]
    if call.type != "call_expression" or not _TESTS.match(code.text(call.child_by_field_name("function"))):
        return False
    return any(one.type in _FUNCTION for one in call.child_by_field_name("arguments").named_children)


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def _cuts(code: Code, names: frozenset[str]) -> Iterator[Cut]:
    for node in code.root.children:
        target, _ = assigned_export(code, node)
        gone = declared_name(code, node) in names or target in names or (target and exported_names(code, node) & names)
        if gone or (imports(code, node) and _brought(code, node) <= names):
            yield _statement(code, node)
        elif node.type != "comment" and not declared_name(code, node):
            yield from _listed(code, node, names)


def _brought(code: Code, node: Node) -> frozenset[str]:
    """The names that an import brings in; one that brings none runs for its own sake."""
    found = frozenset(name for one in _sides(node) for name in uses(code, one))
    return found or frozenset(("",))


def _sides(node: Node) -> Iterator[Node]:
    for one in node.named_children:
        if one.type in ("import_clause", "export_clause"):
            yield one
        elif one.type == "variable_declarator":
            yield one.child_by_field_name("name")


def _listed(code: Code, node: Node, names: frozenset[str]) -> Iterator[Cut]:
    for holder in lists(node):
        every = elements(holder)
        gone = [bool(element_names(code, one) & names) for one in every]
        if all(gone) and every:
            yield holder.start_byte + 1, holder.end_byte - 1
            continue
        last = max((number for number, left in enumerate(gone) if not left), default=-1)
        for number, left in enumerate(gone):
            if left and number < last:
                yield every[number].start_byte, every[number + 1].start_byte
        if last + 1 < len(every):
            yield every[last].end_byte, every[-1].end_byte


def _statement(code: Code, node: Node) -> Cut:
    """Whole lines, with the comments right above and the empty lines before. Raises SyntaxError where it shares a line."""
    source = code.source
    start = source.rfind(b"\n", 0, node.start_byte) + 1
    end = source.find(b"\n", node.end_byte)
    end = len(source) if end < 0 else end + 1
    before, behind = source[start : node.start_byte].strip(), source[node.end_byte : end].strip()
    if before or (behind and not re.match(rb";?\s*(//|/\*|$)", behind)):
        raise SyntaxError(f"line {node.start_point[0] + 1} holds several statements")
    above = node.prev_sibling
    while above is not None and above.type == "comment" and source[above.end_byte : start].count(b"\n") <= 1:
        begins = source.rfind(b"\n", 0, above.start_byte) + 1
        if source[begins : above.start_byte].strip():
            break  # it follows code on its line
        start, above = begins, above.prev_sibling
    while start > 1 and not source[source.rfind(b"\n", 0, start - 1) + 1 : start - 1].strip():
        start = source.rfind(b"\n", 0, start - 1) + 1
    return start, end


def _made(code: Code, cuts: Collection[Cut] | Iterator[Cut], names: frozenset[str]) -> str:
    found = code.source
    for start, end in reversed(_outer(cuts)):
        found = found[:start] + found[end:]
    made = Code(code.path, found)
    if made.root.has_error:
        raise SyntaxError(f"{code.path} would not parse without it")
    if still := sorted(uses(made, made.root) & names):
        raise SyntaxError(f"{code.path} still uses {still[0]}")
    return found.decode()


def _outer(cuts: Collection[Cut] | Iterator[Cut]) -> list[Cut]:
    """Those that lie in no other, joined where they meet."""
    joined: list[Cut] = []
    for start, end in sorted(cuts):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
