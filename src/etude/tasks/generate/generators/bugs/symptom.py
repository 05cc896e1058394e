"""What a person would say about a bug who has only seen it happen: facts for the prompts, from the failure that tells most briefly."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generators.bugs.failures import (
    Compared,
    Failure,
    TracebackFrame,
    parse_comparison,
    statement_at,
)
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.protected import is_test

LONGEST = 160  # characters of a value that a person would copy into a request
STEPS = 6


def facts(
    failures: Sequence[Failure], tests: Mapping[str, str], public: Collection[str], place: str, count: int
) -> Facts:
    """`tests`: test files by path; `public`: names that the project defines; `place`: the module, in words; `count`: of failing tests."""
    if not failures:
        return Facts(
            f"something in {place} no longer works: {_tests(count)}, not part of this tree, fail{'s' * (count == 1)}",
            place=place,
        )
    candidates = [(failure, _seen(failure, tests, public)) for failure in failures]
    failure, seen = min(
        candidates, key=lambda pair: (pair[1] is None, len(pair[1].headline) if pair[1] else 0, pair[0].name)
    )
    if seen is None:
        seen = Facts(_bare(failure, public, place))
    return Facts(seen.headline, seen.steps, seen.expected, seen.actual, place=place)


def _tests(count: int) -> str:
    return "one test" if count == 1 else f"{count} tests"


def _seen(failure: Failure, tests: Mapping[str, str], public: Collection[str]) -> Facts | None:
    frame = next((one for one in failure.frames if one.path in tests), None)
    if frame is None:
        return None
    source = tests[frame.path]
    subject = _subject(source, frame, public)
    steps = _steps(source, frame)
    raised = f"`{failure.kind}: {_short(failure.message)}`" if failure.message else f"`{failure.kind}`"
    if not failure.is_assertion:
        return (
            Facts(f"{subject} fails with {raised}", steps, "no exception", f"{failure.kind}: {_short(failure.message)}")
            if subject
            else None
        )
    if failure.kind == "Failed" and "DID NOT RAISE" in failure.message:
        wanted = (
            failure.message.partition("DID NOT RAISE")[2].strip(" <>'").removeprefix("class '").rpartition(".")[2]
            or "an error"
        )
        return Facts(
            f"{subject or 'a bad input'} is accepted without a word", steps, f"`{wanted}` raised", "no exception"
        )
    found = parse_comparison(failure, source, frame.line)
    return _wrong(found, subject, steps) if found is not None else None


def _wrong(found: Compared, subject: str, steps: tuple[str, ...]) -> Facts | None:
    """A value that is not what it ought to be."""
    if not subject and not _is_call(found.call):
        return None
    call = f"`{found.call}`" if len(found.call) <= LONGEST and _is_call(found.call) else subject
    if found.came and len(found.came) <= LONGEST and "..." not in found.came and found.came != found.wanted:
        return Facts(f"{call} gives `{found.came}`", steps, f"`{_short(found.wanted)}`", f"`{found.came}`")
    return Facts(f"{call} gives a wrong result", steps, f"`{_short(found.wanted)}`")


def _bare(failure: Failure, public: Collection[str], place: str) -> str:
    own = [frame.function for frame in failure.frames if not is_test(frame.path) and frame.function in public]
    subject = f"`{own[0]}`" if own else place
    message = _short(failure.message.split("\n")[0])
    return f"{subject} does not do what it should: {failure.kind}{f': {message}' if message else ''}"


def _subject(source: str, frame: TracebackFrame, public: Collection[str]) -> str:
    """The project's function that the failing line calls, or the last one called before it in the same test."""
    statement = statement_at(source, frame.line)
    for node in [statement] if statement is not None else []:
        if called := [name for name in _called(node) if name in public]:
            return f"`{called[0]}`"
    before = [name for one in _body(source, frame) for name in _called(one) if name in public]
    return f"`{before[-1]}`" if before else ""


def _called(node: ast.AST) -> list[str]:
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return [
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in calls
        if isinstance(one, ast.Attribute | ast.Name)
    ]


def _body(source: str, frame: TracebackFrame) -> list[ast.stmt]:
    """The statements of the test up to the failing line."""
    for node in ast.walk(parse_python(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= frame.line <= (
            node.end_lineno or 0
        ):
            return [one for one in node.body if one.lineno <= frame.line and not _docstring(one)]
    return []


def _steps(source: str, frame: TracebackFrame) -> tuple[str, ...]:
    """What a person would type to see it, where that is short and needs no fixture of a class."""
    body = _body(source, frame)
    lines = [ast.unparse(_seen_without_assertion(one)) for one in body]
    if any("self." in line for line in lines):
        return ()
    if not lines or len(lines) > STEPS or any("\n" in line or len(line) > LONGEST for line in lines):
        return ()
    return tuple(f"`{line}`" for line in lines)


def _seen_without_assertion(node: ast.stmt) -> ast.AST:
    """Of an assertion that compares, the side that a person would type."""
    if isinstance(node, ast.Assert):
        return node.test.left if isinstance(node.test, ast.Compare) else node.test
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith("assert")
        and call.args
    ):
        return call.args[0]
    return node


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_call(text: str) -> bool:
    return "(" in text


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
