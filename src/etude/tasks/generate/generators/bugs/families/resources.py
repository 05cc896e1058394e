"""Resources: closed too early, never, or not flushed."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import field, lines_of, remove_statement, replace_node, statements
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("resources")
ENDINGS = (
    ".close(",
    ".flush(",
    ".release(",
    ".stop(",
    ".join(",
    ".unlink(",
    ".cleanup(",
    ".shutdown(",
    ".terminate(",
    ".destroy(",
    ".end(",
)


@FAMILY.operator("python", "unclosed", "expression_statement", weight=3)
@FAMILY.operator("javascript", "unclosed", "expression_statement", weight=3)
def unclosed(code: Code, node: Node) -> Iterable[Change]:
    text = code.text(node)
    if any(word in text for word in ENDINGS) and "=" not in text.partition("(")[0] and len(text) < 80:
        yield remove_statement(code, node)


@FAMILY.operator("python", "closed-early", "with_statement", weight=4)
def closed_early(code: Code, node: Node) -> Iterable[Change]:
    """The block's last statement falls out of it: it works on what is closed by then."""
    rows = statements(field(node, "body"))
    if len(rows) < 2 or rows[-1].start_point[0] == rows[-2].end_point[0]:
        return
    less = rows[-1].start_point[1] - node.start_point[1]
    start, end = lines_of(code, rows[-1])
    lines = code.source[start:end].decode("utf-8", "replace").splitlines(keepends=True)
    if less > 0 and all(not line[:less].strip() for line in lines):
        yield [(start, end, "".join(line[less:] if line.strip() else line for line in lines))]


@FAMILY.operator("python", "without-with", "with_statement", weight=2)
def never_closed(code: Code, node: Node) -> Iterable[Change]:
    """`with open(p) as f:` becomes `f = open(p)`, its body as it was."""
    clause = next((one for one in node.named_children if one.type == "with_clause"), None)
    items = [one for one in clause.named_children if one.type == "with_item"] if clause is not None else []
    if len(items) != 1 or node.children[0].type == "async":
        return
    pattern = field(items[0], "value")
    if pattern.type != "as_pattern":
        return
    what, target = pattern.named_children[0], pattern.named_children[-1]
    body = field(node, "body")
    if body.start_point[0] == node.start_point[0]:
        return
    less = body.start_point[1] - node.start_point[1]
    rest = code.text(body).split("\n")
    cut = "\n".join([rest[0], *(line[less:] if not line[:less].strip() else line for line in rest[1:])])
    margin = " " * node.start_point[1]
    yield replace_node(node, f"{code.text(target)} = {code.text(what)}\n{margin}{cut}")


@FAMILY.operator("python", "wrong-mode", "string", weight=2)
def mode(code: Code, node: Node) -> Iterable[Change]:
    """A file opened to be written over instead of added to, as text instead of bytes."""
    replacements = {"a": "w", "w": "a", "rb": "r", "wb": "w", "ab": "wb"}
    text = code.text(node)
    place = node.parent
    if (
        text[1:-1] in replacements
        and place.type in ("argument_list", "keyword_argument")
        and "open" in code.text(place.parent)[:40]
    ):
        yield replace_node(node, f"{text[0]}{replacements[text[1:-1]]}{text[-1]}")
