"""Runs a generated function in this process under a guard of steps and sizes, so that a mutant can neither loop nor grow.

Only for code that the factory itself made from its templates: no isolation is claimed. (Code of an agent runs in a sandbox.)
"""

from __future__ import annotations

import copy
import sys
from types import CodeType, FrameType
from typing import Any, Callable, Mapping, Sequence

# Inputs hold at most 8 items, so an honest template needs under 50 line events; a loop is cut soon after.
MAX_STEPS = 400
# `xs.extend(xs)` in a loop doubles each step: sizes must be watched as well as steps.
MAX_SIZE = 1_000


class Runaway(BaseException):
    """The guarded code ran too long or grew too large. No Exception: the code under guard must not catch it."""


class Guard:
    """Counts the line events of code compiled under `filename` and measures the locals' sizes at each."""

    def __init__(self, filename: str, max_steps: int = MAX_STEPS) -> None:
        self.filename, self.max_steps, self.steps = filename, max_steps, 0

    def __enter__(self) -> Guard:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self.filename):
            return None
        if event == "line":
            self.steps += 1
            if self.steps > self.max_steps:
                raise Runaway(f"more than {self.max_steps} steps")
            for value in frame.f_locals.values():
                if isinstance(value, (list, str)) and len(value) > MAX_SIZE:
                    raise Runaway(f"a local grew beyond {MAX_SIZE} entries")
        return self._trace


def compile_source(source: str, filename: str = "<exercise>") -> CodeType:
    """`source` as code whose line events a Guard of the same filename counts."""
    return compile(source, filename, "exec")


def outcomes(source: str, name: str, inputs: Sequence[Sequence[Any]]) -> list[str]:
    """For each argument list, the `repr` of what function `name` returns, or `! Error` for how it ended otherwise."""
    space: dict[str, Any] = {}
    exec(compile_source(source), space)  # our own template text
    return [_outcome(space[name], args) for args in inputs]


def _outcome(function: Callable[..., Any], args: Sequence[Any]) -> str:
    try:
        with Guard("<exercise>"):
            return repr(function(*copy.deepcopy(list(args))))
    except (Exception, Runaway) as error:  # noqa: BLE001 - however it ends is its behaviour
        return f"! {type(error).__name__}"


def literal_arguments(args: Sequence[Any]) -> str:
    """Arguments as they stand in a call."""
    return ", ".join(repr(arg) for arg in args)


def is_plain(value: Any) -> bool:
    """Whether a value survives JSON and `repr` unchanged: None, bool, int, str, lists and str-keyed dicts of them."""
    if isinstance(value, list):
        return all(is_plain(entry) for entry in value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(entry) for key, entry in value.items())
    return value is None or isinstance(value, (bool, int, str))
