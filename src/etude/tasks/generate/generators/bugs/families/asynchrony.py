"""Asynchrony: an await that is missing, a gather that waits for too little or loses errors, a lock not taken."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import (
    arguments,
    callee,
    dedent_block,
    field,
    keyword,
    replace_node,
    without_argument,
)
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("async")


@FAMILY.operator("python", "missing-await", "await", weight=4)
@FAMILY.operator("javascript", "missing-await", "await_expression", weight=4)
def unawaited(code: Code, node: Node) -> Iterable[Change]:
    yield replace_node(node, code.text(node.named_children[-1]))


@FAMILY.operator("python", "wrong-gather", "call", weight=3)
def gathered(code: Code, node: Node) -> Iterable[Change]:
    """Errors come back as values, or are thrown; the last of what is waited for is left out."""
    name = callee(code, node)
    if name == "gather":
        option = keyword(code, node, "return_exceptions")
        if option is not None:
            yield without_argument(code, node, option)
        else:
            args = arguments(node)
            if args:
                yield [(args[-1].end_byte, args[-1].end_byte, ", return_exceptions=True")]
            if len(args) > 1:
                yield without_argument(code, node, args[-1])
    elif name == "wait" and (option := keyword(code, node, "return_when")) is not None:
        yield without_argument(code, node, option)


@FAMILY.operator("javascript", "wrong-gather", "call_expression", weight=3)
def js_gathered(code: Code, node: Node) -> Iterable[Change]:
    called = field(node, "function")
    replacements = {
        "Promise.all": ("Promise.race", "Promise.allSettled"),
        "Promise.allSettled": ("Promise.all",),
        "Promise.race": ("Promise.all",),
    }
    yield from (replace_node(called, other) for other in replacements.get(code.text(called), ()))


@FAMILY.operator("python", "unlocked", "with_statement", weight=3)
def unlocked(code: Code, node: Node) -> Iterable[Change]:
    header = code.text(node).partition(":")[0].lower()
    if "lock" in header or "semaphore" in header:
        yield replace_node(node, dedent_block(code, field(node, "body"), node))


@FAMILY.operator("python", "sync-iteration", "for_statement", weight=1)
@FAMILY.operator("python", "sync-with", "with_statement", weight=1)
def synchronous(code: Code, node: Node) -> Iterable[Change]:
    first = node.children[0]
    if first.type == "async":
        yield [(first.start_byte, node.children[1].start_byte, "")]


@FAMILY.operator("javascript", "forgotten-return-of-promise", "return_statement", weight=3)
def js_lost(code: Code, node: Node) -> Iterable[Change]:
    """A promise made and not handed back: the caller goes on before it is done."""
    value = node.named_children[0] if node.named_children else None
    if (
        value is not None
        and value.type == "call_expression"
        and any(f".{w}(" in code.text(value) for w in ("then", "catch", "finally"))
    ):
        yield replace_node(node, f"{code.text(value)};")
