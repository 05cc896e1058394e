"""A table of a settings file from elsewhere: read key by key, faults named with their place, unread keys reported in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError


class ManifestTable:
    """One table, and those below it. All readers raise TaskError for a value of another kind."""

    def __init__(self, values: Any, place: Path, name: str = "") -> None:
        if not isinstance(values, Mapping):
            raise TaskError(f"{place}: {name or 'the file'} must be a table, not {_short(values)}")
        self._values, self._place, self._name = values, place, name
        self._read: set[str] = set()
        self._below: list[ManifestTable] = []

    def has(self, key: str) -> bool:
        return key in self._values

    def raw(self, key: str) -> Any:
        self._read.add(key)
        return self._values.get(key)

    def table(self, key: str) -> ManifestTable:
        """Empty where there is none."""
        found = ManifestTable({} if self.raw(key) is None else self.raw(key), self._place, self._called(key))
        self._below.append(found)
        return found

    def text(self, key: str, otherwise: str = "") -> str:
        found = self.raw(key)
        found = otherwise if found is None else found
        return found if isinstance(found, str) else self._wrong(key, "a text", found)

    def flag(self, key: str) -> bool | None:
        found = self.raw(key)
        return found if found is None or isinstance(found, bool) else self._wrong(key, "true or false", found)

    def seconds(self, key: str, otherwise: float, least: float = 0.0) -> float:
        """Above `least`, or at it where that is not 0."""
        found = self.raw(key)
        if found is None:
            return otherwise
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found <= least:
            return self._wrong(key, f"seconds above {least:g}", found)
        return float(found)

    def count(self, key: str, otherwise: int = 0) -> int:
        found = self.raw(key)
        found = otherwise if found is None else found
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            return self._wrong(key, "a whole number of 0 or more", found)
        return found

    def list(self, key: str) -> list[Any]:
        found = self.raw(key)
        found = [] if found is None else found
        return found if isinstance(found, list) else self._wrong(key, "a list", found)

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.list(key)
        return (
            tuple(found) if all(isinstance(word, str) for word in found) else self._wrong(key, "a list of texts", found)
        )

    def words(self, key: str) -> dict[str, str]:
        """A table of texts, as `env` is one."""
        found = self.raw(key)
        found = {} if found is None else found
        if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
            return self._wrong(key, "a table of texts", found)
        return dict(found)

    def unread(self) -> list[str]:
        """Keys that were not read, here and below."""
        own = [self._called(key) for key in self._values if key not in self._read]
        return own + [key for below in self._below for key in below.unread()]

    def wrong(self, key: str, wanted: str, found: Any) -> TaskError:
        return TaskError(f"{self._place}: {self._called(key)} must be {wanted}, not {_short(found)}")

    def _wrong(self, key: str, wanted: str, found: Any) -> Any:
        raise self.wrong(key, wanted, found)

    def _called(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else str(key)


def _short(value: Any) -> str:
    return repr(value)[:60]
