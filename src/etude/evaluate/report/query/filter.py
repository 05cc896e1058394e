"""Filter expressions over rows: `reward > 0.5 and (category = bugfix or not reason ~ "time.?out")`.

    expression := all ("or" all)*        all := one ("and" one)*        one := "not" one | "(" expression ")" | field op value
    op := = == != < <= > >= ~ !~         value := 1.5 | "text" | 'text' | word | true | false | null

`~` searches a regular expression in a text. A row that lacks the field has null there: it equals null and nothing else, is
no number's greater or smaller, and matches nothing. Numbers are compared with numbers and texts with texts alone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Row = Mapping[str, Any]
ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TOKEN = re.compile(
    r"\s*(?:(?P<op><=|>=|!=|==|!~|[=<>~])|(?P<mark>[()])|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<word>[^\s()=<>!~\"']+))"
)
_WHOLE = re.compile(r"[+-]?[0-9]+")
NAMED = {"true": True, "false": False, "null": None}


class FilterError(ValueError):
    """An expression that can't be read; shows the place."""


class RowFilter(Protocol):
    """Whether a row is wanted, and the fields that this takes."""

    @property
    def fields(self) -> frozenset[str]: ...

    def __call__(self, row: Row) -> bool: ...


@dataclass(frozen=True)
class Compare:
    """field op value."""

    field: str
    op: str
    value: Any

    @property
    def fields(self) -> frozenset[str]:
        return frozenset({self.field})

    def __call__(self, row: Row) -> bool:
        found = row.get(self.field)
        if self.op in ("=", "!="):
            return (_same(found, self.value)) == (self.op == "=")
        if self.op in ("~", "!~"):
            return (isinstance(found, str) and self.value.search(found) is not None) == (self.op == "~")
        if found is None or isinstance(found, str) != isinstance(self.value, str) or isinstance(found, list | dict):
            return False
        return ORDERED[self.op](found, self.value)


@dataclass(frozen=True)
class Both:
    """All of the parts, or any of them."""

    parts: tuple[RowFilter, ...]
    every: bool

    @property
    def fields(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.fields for part in self.parts))

    def __call__(self, row: Row) -> bool:
        return (all if self.every else any)(part(row) for part in self.parts)


@dataclass(frozen=True)
class Not:
    """Everything else."""

    part: RowFilter

    @property
    def fields(self) -> frozenset[str]:
        return self.part.fields

    def __call__(self, row: Row) -> bool:
        return not self.part(row)


def parse(text: str) -> RowFilter:
    """The filter that `text` says. Raises FilterError with the place that can't be read."""
    return _Parser(text).whole()


def _same(found: Any, value: Any) -> bool:
    """Equal and of one kind: 1 is not true, and a text of digits is no number."""
    return found == value and isinstance(found, bool) == isinstance(value, bool)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # kind, text, place
        at = 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            if found is None:
                raise self._wrong("nothing that belongs into a filter", at + len(text[at:]) - len(text[at:].lstrip()))
            kind = str(found.lastgroup)
            self._tokens.append((kind, found.group(kind), found.start(kind)))
            at = found.end()
        self._next = 0

    def whole(self) -> RowFilter:
        found = self._any()
        if self._next < len(self._tokens):
            raise self._wrong("after a comparison come `and`, `or`, `)` or the end")
        return found

    def _any(self) -> RowFilter:
        parts = [self._all()]
        while self._take("word", "or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Both(tuple(parts), every=False)

    def _all(self) -> RowFilter:
        parts = [self._one()]
        while self._take("word", "and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Both(tuple(parts), every=True)

    def _one(self) -> RowFilter:
        if self._take("word", "not"):
            return Not(self._one())
        if self._take("mark", "("):
            found = self._any()
            if not self._take("mark", ")"):
                raise self._wrong("a `)` is missing")
            return found
        field = self._need("word", "a field's name")
        op = self._need("op", f"one of = != < <= > >= ~ !~ after {field}").replace("==", "=")
        return Compare(field, op, self._value(op))

    def _value(self, op: str) -> Any:
        place = self._next
        kind, text = self._peek()
        if kind not in ("word", "text"):
            raise self._wrong("a value is missing: a number, a word or a text in quotes")
        self._next += 1
        value: Any = re.sub(r"\\(.)", r"\1", text[1:-1]) if kind == "text" and op not in ("~", "!~") else text
        if kind == "text" and op in ("~", "!~"):
            value = text[1:-1]  # backslashes are the regular expression's
        if op in ("~", "!~"):
            try:
                return re.compile(value)
            except re.error as error:
                self._next = place
                raise self._wrong(f"{value!r} is no regular expression: {error}") from error
        value = _number(value) if kind == "word" else value
        if op in ORDERED and (value is None or isinstance(value, bool)):
            self._next = place
            raise self._wrong(f"{text} has no order: compare it with = or !=")
        return value

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next][:2] if self._next < len(self._tokens) else ("", "")

    def _take(self, kind: str, text: str) -> bool:
        found = self._peek() == (kind, text)
        self._next += found
        return found

    def _need(self, kind: str, what: str) -> str:
        found, text = self._peek()
        if found != kind:
            raise self._wrong(f"here should be {what}")
        self._next += 1
        return text

    def _wrong(self, words: str, at: int | None = None) -> FilterError:
        if at is None:
            at = self._tokens[self._next][2] if self._next < len(self._tokens) else len(self._text)
        return FilterError(f"the filter can't be read: {words}\n  {self._text}\n  {' ' * at}^")


def _number(word: str) -> Any:
    if word in NAMED:
        return NAMED[word]
    if _WHOLE.fullmatch(word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        return word
