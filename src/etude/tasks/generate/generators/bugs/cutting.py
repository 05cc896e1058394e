"""Changes that operators are made of: swap two nodes, replace one, take a statement away with its lines."""

from __future__ import annotations

from collections.abc import Mapping

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.operator import Change


def replace_node(node: Node, text: str) -> Change:
    return [(node.start_byte, node.end_byte, text)]


def swap_nodes(code: Code, one: Node, other: Node) -> Change:
    return [(one.start_byte, one.end_byte, code.text(other)), (other.start_byte, other.end_byte, code.text(one))]


def field(node: Node, name: str) -> Node:
    """A child that the grammar promises, by its field."""
    found = node.child_by_field_name(name)
    if found is None:
        raise LookupError(f"a {node.type} without {name}: the grammar has changed")
    return found


def statements(block: Node) -> list[Node]:
    """Of a block, without comments."""
    return [one for one in block.named_children if one.type != "comment"]


def remove_statement(code: Code, node: Node) -> Change:
    """A statement goes, with its lines where it fills them; in Python `pass` holds a block that would be empty."""
    holder = node.parent
    if code.language == "python" and holder is not None and holder.type == "block" and len(statements(holder)) == 1:
        return replace_node(node, "pass")
    start, end = lines_of(code, node)
    return [(start, end, "")]


def lines_of(code: Code, node: Node) -> tuple[int, int]:
    """The node's bytes, widened to whole lines where they hold nothing else."""
    begin = code.source.rfind(b"\n", 0, node.start_byte) + 1
    stop = code.source.find(b"\n", node.end_byte)
    stop = len(code.source) if stop < 0 else stop + 1
    alone = not code.source[begin : node.start_byte].strip() and not code.source[node.end_byte : stop].strip()
    return (begin, stop) if alone else (node.start_byte, node.end_byte)


def dedent_block(code: Code, block: Node, holder: Node) -> str:
    """A block's text as it would stand in the holder's place: its lines begin where the holder does."""
    less = block.start_point[1] - holder.start_point[1]
    first, *rest = code.text(block).split("\n")
    cut = [line[less:] if not line[:less].strip() else line for line in rest]
    return "\n".join([first, *cut])


def table(code: Code, node: Node, replacements: Mapping[str, tuple[str, ...]]) -> list[Change]:
    """One change for each thing that this token may become."""
    return [replace_node(node, text) for text in replacements.get(code.text(node), ())]


def callee(code: Code, call: Node) -> str:
    """What a call calls, by its last name: `c` of `a.b.c(…)`."""
    function = field(call, "function")
    return (
        code.text(function).rpartition(".")[2]
        if function.type in ("attribute", "identifier", "member_expression")
        else ""
    )


def arguments(call: Node) -> list[Node]:
    return [one for one in field(call, "arguments").named_children if one.type != "comment"]


def keyword(code: Code, call: Node, name: str) -> Node | None:
    """A Python call's keyword argument."""
    for one in arguments(call):
        if one.type == "keyword_argument" and code.text(field(one, "name")) == name:
            return one
    return None


def without_argument(code: Code, call: Node, gone: Node) -> Change:
    """The call with one argument less, and the comma that belonged to it."""
    siblings = arguments(call)
    place = [one.id for one in siblings].index(gone.id)
    if place:
        return [(siblings[place - 1].end_byte, gone.end_byte, "")]
    end = siblings[1].start_byte if len(siblings) > 1 else gone.end_byte
    return [(gone.start_byte, end, "")]
