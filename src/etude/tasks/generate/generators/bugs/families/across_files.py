"""Bugs between two files: a signature that changed where it is declared and not where it is called, a constant that drifted apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import arguments, callee, field
from etude.tasks.generate.generators.bugs.edit import SourceEdit
from etude.tasks.generate.generators.bugs.operator import Site

NAME = "across-files"
WEIGHT = 4.0
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]{2,}")


def sites(codes: Mapping[str, Code]) -> Iterator[Site]:
    """Of a whole project. `codes`: its sources by path."""
    yield from _drifted_signatures(codes)
    yield from _drifted_constants(codes)


def _drifted_signatures(codes: Mapping[str, Code]) -> Iterator[Site]:
    """Two parameters change places, and so do the arguments of the calls in the same file; other files go on calling as before."""
    callers = _callers(codes)
    for path, code in codes.items():
        for function in code.functions:
            parameters = function.node.child_by_field_name("parameters")
            if "." in function.name or parameters is None:
                continue
            plain = [one for one in parameters.named_children if one.type == "identifier"]
            own, foreign = callers.get((function.short, path), []), _foreign(callers, function.short, path)
            if len(plain) < 2 or plain != list(parameters.named_children[: len(plain)]) or not foreign:
                continue
            pairs = [(plain[0], plain[1])]
            for call in own:
                args = arguments(call)
                if len(args) > 1 and "keyword" not in args[0].type + args[1].type:
                    pairs.append((args[0], args[1]))
            edits = [edit for one, other in pairs for edit in _exchange(code, one, other)]
            yield Site(
                "signature-drift",
                NAME,
                path,
                function.name,
                code.line(parameters.start_byte),
                WEIGHT,
                tuple(sorted(edits)),
            )


def _callers(codes: Mapping[str, Code]) -> dict[tuple[str, str], list[Node]]:
    found: dict[tuple[str, str], list[Node]] = {}
    for path, code in codes.items():
        for kind in ("call", "call_expression"):
            for call in code.by_kind.get(kind, ()):
                if field(call, "arguments").type in ("argument_list", "arguments"):
                    found.setdefault((callee(code, call), path), []).append(call)
    return found


def _foreign(callers: Mapping[tuple[str, str], list[Node]], name: str, path: str) -> list[Node]:
    return [call for (called, where), calls in callers.items() if called == name and where != path for call in calls]


def _exchange(code: Code, one: Node, other: Node) -> list[SourceEdit]:
    return [
        SourceEdit(code.path, one.start_byte, one.end_byte, code.text(other).encode()),
        SourceEdit(code.path, other.start_byte, other.end_byte, code.text(one).encode()),
    ]


def _drifted_constants(codes: Mapping[str, Code]) -> Iterator[Site]:
    """A module that imports a constant gets an older value of its own, right below its imports."""
    values = dict(_constants(codes))
    for path, code in codes.items():
        for imported in code.by_kind.get("import_from_statement", ()):
            if imported.parent.type != "module":
                continue
            for one in imported.named_children[1:]:
                name = code.text(one)
                if one.type != "dotted_name" or name not in values or values[name][0] == path:
                    continue
                for stale in _older(values[name][1]):
                    end = imported.end_byte
                    edit = SourceEdit(path, end, end, f"\n\n{name} = {stale}".encode())
                    yield Site("constant-drift", NAME, path, "", code.line(end), WEIGHT, (edit,))


def _constants(codes: Mapping[str, Code]) -> Iterator[tuple[str, tuple[str, str]]]:
    for path, code in codes.items():
        for node in code.by_kind.get("assignment", ()):
            value = node.child_by_field_name("right")
            name = code.text(field(node, "left"))
            if (
                node.parent.parent.type == "module"
                and value is not None
                and value.type in ("integer", "string", "true", "false")
            ):
                if _CONSTANT.fullmatch(name) and len(code.text(value)) < 60:
                    yield name, (path, code.text(value))


def _older(value: str) -> list[str]:
    if value in ("True", "False"):
        return ["False" if value == "True" else "True"]
    if re.fullmatch(r"[0-9]{1,9}", value):
        return [str(int(value) + 1)]
    return [value[:-2] + value[-1]] if len(value) > 3 and value[-2] != "\\" and value[0] in "'\"" else []
