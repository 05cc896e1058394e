"""What a failing run says: tracebacks by test, and the values that an assertion compared; read from the runner's own output."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from etude.core.bounded_python import parse_python
from etude.sandbox.spec import WORKDIR

_HEADER = re.compile(r"^_{3,} (?:ERROR (?:at setup of|collecting) )?(?P<name>\S.*?) _{3,}$", re.MULTILINE)
_END = re.compile(r"^(?:=+ .* =+|-+ Captured .* -+|_{3,} \S.* _{3,})$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line (?P<line>\d{1,9}), in (?P<function>\S+)$', re.MULTILINE)
_RAISED = re.compile(
    r"^(?P<kind>[A-Za-z_][\w.]{0,200}(?:Error|Exception|Warning|Exit|Interrupt|Iteration|[A-Z]\w{0,200}))(?:: (?P<said>.*))?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class TracebackFrame:
    path: str  # relative to the project
    line: int
    function: str
    text: str  # as the traceback prints it


@dataclass(frozen=True)
class Failure:
    """One failing test: its name as the runner heads it, its traceback without paths of the machine, what was raised."""

    name: str
    traceback: str
    kind: str
    message: str
    frames: tuple[TracebackFrame, ...] = field(default=())

    @property
    def is_assertion(self) -> bool:
        return self.kind in ("AssertionError", "Failed")


def read_failures(output: str) -> Iterator[Failure]:
    """Of pytest's output with --tb=native."""
    for match in _HEADER.finditer(output):
        rest = output[match.end() + 1 :]
        stop = _END.search(rest)
        text = scrub_paths(rest[: stop.start()] if stop else rest).strip("\n")
        raised = list(_RAISED.finditer(text))
        if raised and "Traceback" in text:
            last = raised[-1]
            description = text[last.start("said") :].strip() if last["said"] else ""
            yield Failure(match["name"], text, last["kind"].rpartition(".")[2], description, tuple(_frames(text)))


def _frames(text: str) -> Iterator[TracebackFrame]:
    found = list(_FRAME.finditer(text))
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(text)
        lines = [match[0]]
        for line in text[match.end() + 1 : end].split("\n"):
            if not line.startswith("    "):
                break
            lines.append(line)
        yield TracebackFrame(match["path"], int(match["line"]), match["function"], "\n".join(lines))


def scrub_paths(text: str) -> str:
    """Paths relative to the project, addresses without their numbers."""
    text = re.sub(rf"{re.escape(WORKDIR)}/(?:\./)?", "", text)
    return re.sub(r"\b0x[0-9a-f]{6,}", "0x7f2a10c4", text)


@dataclass(frozen=True)
class Compared:
    """An assertion in source: the call under test, what was wanted, what came; any may be empty."""

    call: str
    wanted: str
    came: str


def parse_comparison(failure: Failure, source: str, line: int) -> Compared | None:
    """From the assertion at a line of a test file, with the value from the message. None where it compares nothing."""
    statement = statement_at(source, line)
    if isinstance(statement, ast.Assert):
        test = statement.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            came = re.match(
                r"(?:AssertionError: )?assert (?P<left>.+?) == (?P<right>.+)", failure.message.split("\n")[0]
            )
            return Compared(ast.unparse(test.left), ast.unparse(test.comparators[0]), came["left"] if came else "")
        return Compared(ast.unparse(test), "true", "")
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(call.args) >= 2:
        if call.func.attr in ("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertIs"):
            left, _, right = failure.message.split("\n")[0].partition(" != ")
            one, other = call.args[:2]
            if isinstance(one, ast.Constant | ast.List | ast.Tuple | ast.Dict):  # written the other way round
                return Compared(ast.unparse(other), ast.unparse(one), right)
            return Compared(ast.unparse(one), ast.unparse(other), left)
    return None


def statement_at(source: str, line: int) -> ast.stmt | None:
    """The smallest statement that holds this line."""
    around = [
        node
        for node in ast.walk(parse_python(source))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: node.lineno, default=None)
