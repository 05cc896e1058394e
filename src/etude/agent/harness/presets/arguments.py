"""Checks a call's arguments against a tool's parameters. Pure; every objection names the argument, the value and the remedy.

Strict: each value has the schema's type. Lenient: a value that says the same in another type is taken ("5" for 5, "true" for
true, a list as JSON text, null for an argument left out); how many were bent is counted, since it is a habit to train away.
Unknown names are refused either way, with the closest known one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etude.agent.harness.tools.parameter import Parameter
from etude.core.spelling import similar
from etude.core.trace.plain_json import parse

# Enough of a wrong value to recognise it.
SHOWN_CHARS = 60

_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


class ArgumentError(Exception):
    """The arguments can't be used; the message is for the model."""


@dataclass(frozen=True)
class CheckedArguments:
    """Arguments of the right types. `bent`: how many were converted."""

    values: dict[str, Any]
    bent: int


def check(parameters: tuple[Parameter, ...], arguments: Any, *, strict: bool) -> CheckedArguments:
    """Raises BadArguments."""
    checker = _Checker(strict)
    values = checker.object(parameters, arguments, "")
    return CheckedArguments(values, checker.bent)


def closest(name: str, known: list[str]) -> str:
    """The known name that `name` is a slip of, or ""."""
    folded = {candidate.replace("_", "").lower(): candidate for candidate in known}
    found = similar(name.replace("_", ""), folded)
    return folded[found[0]] if found else ""


class _Checker:
    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.bent = 0

    def object(self, parameters: tuple[Parameter, ...], value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ArgumentError(f"{where or 'the arguments'} must be an object, got {_shown(value)}")
        known = {parameter.name: parameter for parameter in parameters}
        for name in value:
            if name not in known:
                raise ArgumentError(_unknown(str(name), list(known), where))
        found: dict[str, Any] = {}
        for name, parameter in known.items():
            given = value.get(name)
            if given is None and (name not in value or not self._strict and not parameter.required):
                if parameter.required:
                    raise ArgumentError(f"{_path(where, name)} is missing; it must be {_ARTICLES[parameter.kind]}")
                self.bent += name in value
                continue
            found[name] = self.value(parameter, given, _path(where, name))
        return found

    def value(self, parameter: Parameter, value: Any, where: str) -> Any:
        if not self._strict:
            value = self._bend(parameter, value)
        if not _is(parameter.kind, value):
            raise ArgumentError(f"{where} must be {_ARTICLES[parameter.kind]}, got {_shown(value)}")
        if parameter.kind == "string":
            _require_unicode(value, where)
        if parameter.kind == "object":
            return self.object(parameter.fields, value, where)
        if parameter.kind == "array":
            item = parameter.item or Parameter("item")
            return [self.value(item, one, f"{where}[{i}]") for i, one in enumerate(value)]
        _require_range(parameter, value, where)
        return value

    def _bend(self, parameter: Parameter, value: Any) -> Any:
        kind, bent = parameter.kind, value
        if _is(kind, value):
            return value
        if kind in ("integer", "boolean", "array", "object") and isinstance(value, str):
            bent = _parsed(value)
        if kind == "integer" and isinstance(bent, float) and bent.is_integer():
            bent = int(bent)
        if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
            bent = str(value)
        if kind == "array" and isinstance(value, str) and not _is("array", bent):
            bent = [value] if (parameter.item or Parameter("item")).kind == "string" else value
        if not _is(kind, bent):
            return value
        self.bent += 1
        return bent


def _is(kind: str, value: Any) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    types = {"string": str, "boolean": bool, "array": list, "object": Mapping}
    return isinstance(value, types[kind])


def _parsed(text: str) -> Any:
    """The JSON value a text holds, also in Python's spelling of true and false; else the text."""
    word = text.strip()
    try:
        return parse({"True": "true", "False": "false"}.get(word, word))
    except ValueError:
        return text


def _require_range(parameter: Parameter, value: Any, where: str) -> None:
    if parameter.choices and value not in parameter.choices:
        raise ArgumentError(f"{where} must be one of {', '.join(parameter.choices)}, got {_shown(value)}")
    if parameter.least is not None and value < parameter.least:
        raise ArgumentError(f"{where} must be at least {parameter.least}, got {_shown(value)}")
    if parameter.most is not None and value > parameter.most:
        raise ArgumentError(f"{where} must be at most {parameter.most}, got {_shown(value)}")


def _require_unicode(value: str, where: str) -> None:
    """JSON can spell half a surrogate pair, which no file and no path can hold."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ascii(value[error.start])[1:-1]
        raise ArgumentError(f"{where} holds {half}, half a surrogate pair; write the whole character") from None


def _unknown(name: str, known: list[str], where: str) -> str:
    near = closest(name, known)
    remedy = f"did you mean {near}?" if near else f"known are: {', '.join(known) or 'none'}"
    return f"unknown argument {_path(where, name[:SHOWN_CHARS])}; {remedy}"


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
