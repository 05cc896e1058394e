"""The index of rollouts as columns: one typed array a field, texts as numbers into a list of words.

10,000 rollouts are about a megabyte, in memory, on disk and on the wire alike, so that a browser holds all of them and filters
without asking. Rows are never taken away; each knows the generation of its last change, so that a reader who has seen
generation g asks for what changed since.

Bytes of `pack`: u32 length of the header | header JSON, blanks to a multiple of 8 | the columns, each at a multiple of 8,
little-endian. Header: {"generation", "total", "rows", "columns": [{"name", "type", "at"}], "words": {name: [first, [word…]]}}.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Any

import numpy as np

WORD = "word"
# Every field of a row, with its type; `word` is i4 into the column's words.
FIELDS: dict[str, str] = {
    "source": WORD,  # rl, bench or sessions
    "policy": WORD,  # who answered
    "task": WORD,
    "level": WORD,  # of the task: its category as the source sorts it
    "group": "i4",
    "member": "i4",
    "step": "i4",  # that trained it; -1: none has
    "reward": "f4",  # with its other components; NaN: not trained on
    "outcome": "f4",  # the grader's score
    "advantage": "f4",  # NaN: not trained on
    "tokens": "i4",  # in all segments
    "sampled": "i4",  # of them by the policy
    "surprise": "f4",  # mean of -logprob over the sampled ones, nats
    "turns": "i4",
    "calls": "i4",
    "failed": "i4",  # calls
    "malformed": "i4",  # turns
    "summaries": "i4",
    "broken": "i4",  # of them empty, malformed or cut off
    "oldest": "i4",  # policy version that sampled a token of it; -1 where none is known
    "newest": "i4",
    "tries": "i4",
    "host": WORD,  # of a fleet, where its sandbox was; empty: this machine
    "began": "i4",  # unix seconds; -1: not known
    "seconds": "f4",  # wall, all of it; the next four are parts
    "create_s": "f4",
    "policy_s": "f4",
    "tools_s": "f4",
    "grade_s": "f4",
    "tools": WORD,  # names, sorted, a blank between
    "end": WORD,  # why the agent stopped
    "verdict": WORD,  # the grader's words
    "faults": WORD,  # infra faults of tries that were repeated, by class
    "file": WORD,  # of its session in the run; empty: not kept
}
ABSENT: dict[str, float] = {"step": -1, "oldest": -1, "newest": -1, "group": -1, "member": -1, "began": -1, "tries": 1}
DTYPES = {WORD: "<i4", "i4": "<i4", "f4": "<f4"}
GROWTH = 1024  # rows that a column starts with; it doubles from there


class Columns:
    """Rows of `FIELDS`. Not safe for several threads: its owner locks."""

    def __init__(self) -> None:
        self.generation = 0
        self._rows = 0
        self._arrays = {name: np.zeros(GROWTH, DTYPES[kind]) for name, kind in FIELDS.items()}
        self._changed = np.zeros(GROWTH, np.int32)
        self._words: dict[str, dict[str, int]] = {name: {} for name, kind in FIELDS.items() if kind == WORD}
        self._lists: dict[str, list[str]] = {name: [] for name in self._words}  # the same by number
        self._word_ages: dict[str, list[int]] = {name: [] for name in self._words}

    def __len__(self) -> int:
        return self._rows

    @property
    def word_fields(self) -> frozenset[str]:
        """The columns that hold words."""
        return frozenset(self._words)

    def tick(self) -> int:
        """Begin a new generation: what is set from now on belongs to it."""
        self.generation += 1
        return self.generation

    def add(self, **values: Any) -> int:
        """A new row; its number. What isn't given is absent: NaN, -1, 0 or the empty word."""
        if self._rows == len(self._changed):
            self._grow()
        row, self._rows = self._rows, self._rows + 1
        absent: dict[str, Any] = {
            name: "" if kind == WORD else ABSENT.get(name, float("nan") if kind == "f4" else 0)
            for name, kind in FIELDS.items()
        }
        self.set(row, **(absent | values))
        return row

    def set(self, row: int, **values: Any) -> None:
        """Change fields of a row. Raises KeyError for a field that there isn't."""
        for name, value in values.items():
            self._arrays[name][row] = self._word(name, str(value)) if FIELDS[name] == WORD else value
        self._changed[row] = self.generation

    def column(self, name: str) -> np.ndarray:
        """A field of all rows, read-only in spirit; words are numbers into `words(name)`."""
        return self._arrays[name][: self._rows]

    def words(self, name: str) -> list[str]:
        """The words of a column, by number."""
        return list(self._lists[name])

    def row(self, row: int) -> dict[str, Any]:
        """One row with its words and plain numbers; NaN is None."""
        found: dict[str, Any] = {}
        for name, kind in FIELDS.items():
            value = self._arrays[name][row].item()
            found[name] = self._lists[name][value] if kind == WORD else None if value != value else value
        return found

    def pack(self, since: int = 0) -> bytes:
        """Rows and words that are newer than generation `since`; a column `row` says which they are."""
        rows = np.flatnonzero(self._changed[: self._rows] > since).astype("<i4")
        columns = {"row": rows} | {name: array[rows] for name, array in self._arrays.items()}
        head: dict[str, Any] = {"generation": self.generation, "total": self._rows, "rows": len(rows), "columns": []}
        head["words"] = {name: self._newer(name, since) for name in self._words}
        at, parts = 0, []
        for name, array in columns.items():
            data = array.tobytes()
            head["columns"].append({"name": name, "type": array.dtype.str[1:], "at": at})
            parts.append(data + b"\0" * (-len(data) % 8))
            at += len(parts[-1])
        text = json.dumps(head, ensure_ascii=True, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 4) % 8)
        return b"".join([len(text).to_bytes(4, "little"), text, *parts])

    @classmethod
    def unpack(cls, data: bytes) -> Columns:
        """What `pack()` gave, all of it one generation. Raises ValueError for anything else."""
        size = int.from_bytes(data[:4], "little")
        head = json.loads(data[4 : 4 + size])
        if [c["name"] for c in head["columns"]] != ["row", *FIELDS] or head["rows"] != head["total"]:
            raise ValueError("an index of other columns")
        found = cls()
        while len(found._changed) < head["rows"]:
            found._grow()
        found._rows, found.generation = head["rows"], 1
        found._changed[: found._rows] = 1
        for column in head["columns"][1:]:
            place = 4 + size + column["at"]
            values = np.frombuffer(data, DTYPES[FIELDS[column["name"]]], head["rows"], place)
            found._arrays[column["name"]][: head["rows"]] = values
        for name, (_, words) in head["words"].items():
            found._words[name] = {word: number for number, word in enumerate(words)}
            found._lists[name] = list(words)
            found._word_ages[name] = [1] * len(words)
        return found

    def _newer(self, name: str, since: int) -> list[Any]:
        first = bisect_right(self._word_ages[name], since)
        return [first, self._lists[name][first:]]

    def _word(self, name: str, word: str) -> int:
        known = self._words[name]
        if word not in known:
            known[word] = len(known)
            self._lists[name].append(word)
            self._word_ages[name].append(self.generation)
        return known[word]

    def _grow(self) -> None:
        for name, array in self._arrays.items():
            self._arrays[name] = np.concatenate([array, np.zeros_like(array)])
        self._changed = np.concatenate([self._changed, np.zeros_like(self._changed)])
