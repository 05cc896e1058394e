"""The board's index: what goes in comes out, and news are exactly what changed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.report.board.columns import FIELDS, WORD, Columns

WORDS = st.text(max_size=8)
ROWS = st.lists(
    st.fixed_dictionaries({
        "task": WORDS, "policy": WORDS, "group": st.integers(-1, 2**31 - 1), "reward": st.floats(width=32),
        "turns": st.integers(0, 1000),
    }), max_size=20,
)  # fmt: skip


def same(left: dict, right: dict) -> bool:
    return all(left[name] == right[name] for name in FIELDS)


@given(ROWS)
def test_a_stored_index_reads_back_row_by_row(rows: list[dict]) -> None:
    columns = Columns()
    columns.tick()
    for row in rows:
        columns.add(**row)
    back = Columns.unpack(columns.pack())
    assert len(back) == len(rows)
    assert all(same(back.row(n), columns.row(n)) for n in range(len(rows)))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), WORDS), max_size=40), st.integers(0, 40))
def test_a_reader_who_takes_news_only_sees_what_one_who_reads_all_sees(changes: list, seen_after: int) -> None:
    columns, mirror, words, since = Columns(), {}, [], 0
    for number, (new, row, word) in enumerate(changes):
        columns.tick()
        if new or not len(columns):
            columns.add(task=word)
        else:
            columns.set(row % len(columns), task=word)
        if number % 7 == seen_after % 7:
            since = take(columns, mirror, words, since)
    take(columns, mirror, words, since)
    assert [words[mirror[n]] for n in range(len(columns))] == [columns.row(n)["task"] for n in range(len(columns))]


def take(columns: Columns, mirror: dict[int, int], words: list[str], since: int) -> int:
    """What the page's data.js does with one column."""
    data = columns.pack(since)
    size = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + size])
    at = {column["name"]: 4 + size + column["at"] for column in head["columns"]}
    rows = np.frombuffer(data, "<i4", head["rows"], at["row"])
    tasks = np.frombuffer(data, "<i4", head["rows"], at["task"])
    first, new = head["words"]["task"]
    words[first:] = new
    mirror.update(zip(rows.tolist(), tasks.tolist(), strict=True))
    return head["generation"]


def test_nothing_is_news_to_one_who_has_seen_the_last_generation() -> None:
    columns = Columns()
    columns.tick()
    columns.add(task="a")
    head = json.loads(columns.pack(columns.generation)[4:].split(b"}]", 1)[0].decode().partition(',"columns"')[0] + "}")
    assert head["rows"] == 0 and head["total"] == 1


def test_every_column_lies_at_a_multiple_of_eight_for_typed_arrays() -> None:
    columns = Columns()
    columns.tick()
    for n in range(3):
        columns.add(task="é" * n)
    data = columns.pack()
    size = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + size])
    assert (4 + size) % 8 == 0 and all(column["at"] % 8 == 0 for column in head["columns"])


def test_what_is_not_known_is_absent_not_zero() -> None:
    columns = Columns()
    columns.tick()
    row = columns.row(columns.add(task="t"))
    assert row["reward"] is None and row["step"] == -1 and row["verdict"] == "" and row["turns"] == 0
    assert math.isnan(columns.column("reward")[0])


def test_ten_thousand_rows_take_about_a_megabyte() -> None:
    columns = Columns()
    columns.tick()
    for n in range(10_000):
        columns.add(task=f"one-bug/train/{n // 8:06d}", tools="done edit grep", reward=0.5)
    assert len(columns.pack()) < 1_500_000


@pytest.mark.parametrize("data", [b"", b"\5\0\0\0{}", Columns().pack()[:40]])
def test_bytes_that_are_no_index_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        Columns.unpack(data)


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        Columns().add(colour="red")


def test_words_are_distinguished_from_numbers() -> None:
    assert Columns().word_fields == {name for name, kind in FIELDS.items() if kind == WORD}
