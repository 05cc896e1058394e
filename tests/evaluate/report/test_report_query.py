"""Rows of a run's files: the right ones, in order, one at a time, and a wrong name gets an error that names similar ones."""

import csv
import io
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.group_file import pack_group
from etude.core.trace.segment import Rollout, Segment
from etude.core.trace.session import Session
from etude.core.trace.writer import write_session
from etude.evaluate.report.query import formats
from etude.evaluate.report.query.filter import FilterError, parse
from etude.evaluate.report.query.groups import group_rows
from etude.evaluate.report.query.select import RowQuery, UnknownField, fields_of, select
from etude.evaluate.report.query.tables import NoRun, UnknownTable, check_run, find
from etude.evaluate.report.rows.lines import json_lines

ROWS = [{"a": n, "even": n % 2 == 0, "name": f"row {n}", **({"odd": n} if n % 2 else {})} for n in range(10)]


def lines(path: Path, rows: list[Any], torn: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)


def rollout(group: int, member: int) -> Rollout:
    sampled = np.array([False, True, True])
    segment = Segment(np.arange(3, dtype=np.int32), sampled, np.float32([0, -1, -3]), np.int32([-1, member, 7]))
    counters = {"turns": 2.0}
    info = {"end": "done", "tries": 1, "seconds": {"all": 1.5}}
    return Rollout(
        f"t#{group}.{member}", f"one-bug/{group}", group, [segment], {"outcome": float(member)}, counters, info
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines(tmp_path / "ledger.jsonl", [{"event": "started", "stage": "sft", "time": 10.0}])
    metric = lambda time, step, **values: {
        "kind": "metric",
        "stage": "sft",
        "time": time,
        "step": step,
        "values": values,
    }
    events = [
        metric(5.0, 0, loss=99.0),
        metric(11.0, 0, loss=6.0),
        metric(12.0, 1, loss=5.0),
        metric(13.0, 1, loss=4.0),
    ]
    lines(
        tmp_path / "events.jsonl",
        [*events, metric(13.5, 1, held_out="nan"), {"kind": "note", "stage": "sft", "time": 14.0}],
        '{"ki',
    )
    (tmp_path / "rl" / "groups").mkdir(parents=True)
    for group in (0, 1, 2):
        packed = pack_group([rollout(group, member) for member in range(2)])
        (tmp_path / "rl" / "groups" / f"{group:06d}.zst").write_bytes(packed)
    record = {
        "step": 0,
        "groups": [1, 0],
        "components": [{"outcome": n, "kl": -0.1} for n in range(4)],
        "advantages": [0.0, 0.1, 0.2, 0.3],
    }
    plan = [{"kind": "plan", "digest": "d"}, {"kind": "admitted", "group": 0, "version": 0}]
    finished = [{"kind": "completed", "group": 1, "version": 3}, {"kind": "set_aside", "group": 2, "version": 4}]
    lines(tmp_path / "rl" / "ledger.jsonl", [*plan, *finished], '{"kind": "comp')
    lines(tmp_path / "rl" / "steps.jsonl", [record | {"advantages": [9, 9, 9, 9]}, record])
    outcome = {"task_id": "one-bug/0", "attempt": 0, "score": 1.0, "tokens": 5, "judged": {"clarity": 0.5}}
    lines(tmp_path / "trials" / "sft.jsonl", [outcome, outcome | {"attempt": 1, "score": 0.0}])
    lines(tmp_path / "policies" / "gpt@high.jsonl", [outcome])
    call = {"id": "c0", "name": "test", "arguments": {}}
    said = {"message": {"role": "assistant", "text": "", "calls": [call]}, "usage": {"output_tokens": 7}}
    entries = [
        Entry(0, None, "message", 0.0, {"role": "user", "text": "hi"}),
        Entry(1, None, "completion", 0.5, said),
        Entry(2, None, "tool_result", 0.6, {"text": "no", "failed": True}),
        Entry(3, None, "end", 0.7, {"reason": "done"}),
        Entry(4, None, "verdict", 0.7, {"score": 1.0}),
    ]
    path = tmp_path / "rl" / "sessions" / "step-000" / "000001-0.jsonl"
    path.parent.mkdir(parents=True)
    write_session(path, Session(SessionHeader("s1", "one-bug/1", recipe={"stage": "rl"}), entries), keep_routes=False)
    return tmp_path


def rows(run: Path, name: str) -> list[dict[str, Any]]:
    return [dict(row) for row in find(name).read(run)]


def chosen(**wanted: Any) -> list[dict[str, Any]]:
    return list(select(lambda: iter(ROWS), RowQuery(**wanted))[1])


def test_steps_leave_out_an_attempt_set_aside_and_a_resumed_step_counts_as_last_seen(run: Path) -> None:
    first, second = rows(run, "steps")
    assert (first["loss"], second["loss"]) == (6.0, 4.0)
    assert np.isnan(second["held_out"]) and (second["stage"], second["step"]) == ("sft", 1)


def test_rollouts_have_what_their_step_made_of_them_in_its_order(run: Path) -> None:
    found = rows(run, "rollouts")
    assert [(r["group"], r["member"], r.get("advantage")) for r in found] == [
        (1, 0, 0.0), (1, 1, 0.1), (0, 0, 0.2), (0, 1, 0.3), (2, 0, None), (2, 1, None),
    ]  # fmt: skip
    assert [r.get("admitted_version") for r in found] == [3, 3, None, None, 4, 4]
    assert found[1]["reward"] == pytest.approx(0.9) and found[1]["rewards.kl"] == -0.1
    assert found[0]["session"] == "rl/sessions/step-000/000001-0.jsonl" and found[2]["session"] is None
    assert (found[0]["sampled_tokens"], found[0]["mean_logprob"], found[0]["oldest_version"]) == (2, -2.0, 0)
    assert (found[0]["info.seconds.all"], found[0]["counters.turns"], found[0]["tokens"]) == (1.5, 2.0, 3)


def test_outcomes_of_both_kinds_of_run_say_whose_they_are(run: Path) -> None:
    found = rows(run, "outcomes")
    assert [(r["policy"], r["effort"], r["where"], r["attempt"]) for r in found] == [
        ("sft", "", "trials", 0), ("sft", "", "trials", 1), ("gpt", "high", "", 0),
    ]  # fmt: skip
    assert found[0]["judged.clarity"] == 0.5


def test_a_session_is_described_by_what_it_did_and_came_to(run: Path) -> None:
    [found] = rows(run, "sessions")
    expected = {
        "task_id": "one-bug/1",
        "turns": 1,
        "calls": 1,
        "failed_calls": 1,
        "output_tokens": 7,
        "score": 1.0,
        "end": "done",
    }
    assert expected.items() <= found.items() and found["recipe.stage"] == "rl"


def test_a_line_torn_by_a_kill_is_no_row(run: Path) -> None:
    assert [row["kind"] for row in rows(run, "events")] == ["metric"] * 5 + ["note"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a >= 8", [8, 9]),
        ("a > 2 and a < 5", [3, 4]),
        ("a = 1 or a = 2 and even = true", [1, 2]),
        ("(a = 1 or a = 2) and even = true", [2]),
        ("not (a > 0)", [0]),
        ("odd = null and a < 3", [0, 2]),
        ("odd > 5", [7, 9]),
        ('name = "row 3"', [3]),
        ("name ~ '[12]$'", [1, 2]),
        ("name !~ 'row [0-8]'", [9]),
        ("a == 1.0", [1]),
        ("a = true", []),
        ("name > 5", []),
        ("a != 0 and a<2", [1]),
    ],
)
def test_a_filter_keeps_what_it_says(text: str, kept: list[int]) -> None:
    assert [row["a"] for row in chosen(where=parse(text))] == kept


@pytest.mark.parametrize(
    ("text", "place"),
    [("a >", 3), ("a > 1 b", 6), ("(a > 1", 6), ("> 1", 0), ("a 1", 2), ("a ~ '['", 4), ("a < true", 4), ("a = 1 and", 9), ("", 0), ('a = "x', 4)],
)  # fmt: skip
def test_a_filter_that_cannot_be_read_shows_the_place(text: str, place: int) -> None:
    with pytest.raises(FilterError) as raised:
        parse(text)
    assert str(raised.value).splitlines()[-1] == "  " + " " * place + "^"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.integers(0, 8), st.booleans())
def test_sorting_with_a_limit_is_the_whole_order_cut(pairs: list[tuple[int, int]], limit: int, turned: bool) -> None:
    read = lambda: iter([{"x": x, "y": y, "place": n} for n, (x, y) in enumerate(pairs)])
    sort = ["-x" if turned else "x", "y"]
    whole = list(select(read, RowQuery(sort=sort))[1])
    assert whole == sorted(read(), key=lambda row: (-row["x"] if turned else row["x"], row["y"]))
    assert list(select(read, RowQuery(sort=sort, limit=limit))[1]) == whole[:limit]


def test_rows_without_the_field_come_last_either_way() -> None:
    assert [row["odd"] for row in chosen(sort=["odd"], columns=["odd"])] == [1, 3, 5, 7, 9, *[None] * 5]
    assert [row["odd"] for row in chosen(sort=["-odd"], columns=["odd"])] == [9, 7, 5, 3, 1, *[None] * 5]


def test_columns_keep_their_order_and_patterns_take_what_fits() -> None:
    assert list(chosen(columns=["name", "a"], limit=1)[0]) == ["name", "a"]
    assert list(chosen(columns=["*d*", "a"], limit=1)[0]) == ["odd", "a"]
    assert list(chosen(limit=1)[0]) == ["a", "even", "name", "odd"]


@pytest.mark.parametrize("wanted", [{"columns": ["evn"]}, {"sort": ["-evn"]}, {"where": parse("evn = true")}])
def test_an_unknown_field_is_reported_with_what_comes_near(wanted: dict[str, Any]) -> None:
    with pytest.raises(UnknownField, match="'evn'; did you mean even"):
        chosen(**wanted)


@pytest.mark.parametrize(("name", "field"), [("task", "task_id"), ("outcome", "score"), ("end", "info.end")])
def test_a_name_of_the_boards_filter_is_answered_with_the_field_of_these_rows(name: str, field: str) -> None:
    with pytest.raises(UnknownField, match=f"what the board's filter calls {name} is {field} here"):
        select(lambda: [{field: 1, "other": 2}], RowQuery(columns=[name]))


def test_unknown_rows_and_folders_that_are_no_run_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UnknownTable, match="did you mean rollouts"):
        find("rollout")
    with pytest.raises(NoRun, match=r"recipe\.toml"):
        check_run(tmp_path)


def test_rows_are_read_as_they_are_wanted() -> None:
    counted = itertools.count()
    endless = lambda: ({"a": n, "b": n % 7} for n in counted)
    _, found = select(endless, RowQuery(columns=["a"], where=parse("b = 3")))
    assert len(list(itertools.islice(formats.table(["a"], found), 500))) == 500
    assert next(counted) < 7 * 720


def test_a_long_file_needs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("w") as file:
        file.writelines(
            json.dumps({"kind": "note", "stage": "rl", "time": n, "text": "x" * 100}) + "\n" for n in range(30_000)
        )
    tracemalloc.start()
    _, found = select(
        lambda: json_lines(path), RowQuery(columns=["time"], where=parse("time >= 29990"), sort=["-time"], limit=3)
    )
    got = [row["time"] for row in found]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got == [29999, 29998, 29997] and peak < 1_000_000 < path.stat().st_size


def test_csv_reads_back_and_json_lines_are_objects() -> None:
    rows = [{"a": 'x,"y"\nz', "b": None, "c": [1, 2]}, {"a": "é", "b": True, "c": 1.5}]
    text = "\n".join(formats.comma_separated(["a", "b", "c"], rows))
    assert list(csv.reader(io.StringIO(text))) == [["a", "b", "c"], ['x,"y"\nz', "", "[1, 2]"], ["é", "true", "1.5"]]
    assert [json.loads(line) for line in formats.json_lines(["a", "b", "c"], rows)] == rows


def test_a_table_is_aligned_and_cuts_no_last_column() -> None:
    long = "w" * 90
    found = list(
        formats.table(
            ["n", "text", "last"], [{"n": 7, "text": long, "last": long}, {"n": 12.3456789, "text": "a\nb", "last": ""}]
        )
    )
    assert found[0].startswith("    n  text") and found[1].endswith(long) and found[1].count("w") == 90 + 59
    assert found[2] == "12.35  a b"


def test_fields_are_counted() -> None:
    assert fields_of(ROWS) == {"a": 10, "even": 10, "name": 10, "odd": 5}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-9, 9))))
def test_rows_by_a_field_are_counted_and_averaged_over_those_that_have_a_number(
    pairs: list[tuple[str, int | None]],
) -> None:
    rows = [{"of": name, "figure": value} for name, value in pairs]
    found = {row["of"]: row for row in group_rows(rows, ["of"], ["figure"])}
    assert list(found) == list(dict.fromkeys(name for name, _ in pairs))
    for name, row in found.items():
        own = [value for other, value in pairs if other == name]
        known = [value for value in own if value is not None]
        assert row["rows"] == len(own)
        assert row["figure"] == (pytest.approx(sum(known) / len(known)) if known else None)


def test_a_number_and_the_word_for_it_are_two_groups() -> None:
    assert [row["rows"] for row in group_rows([{"a": 1}, {"a": "1"}, {"a": True}, {}, {"a": 1}], ["a"], [])] == [
        2,
        1,
        1,
        1,
    ]
