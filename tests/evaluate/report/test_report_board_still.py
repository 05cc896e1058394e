"""The one-file report holds the board's own answers, some attempts in full, and says what it left out."""

from __future__ import annotations

import gzip
import json
import math
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.report.board.columns import Columns
from etude.evaluate.report.board.index import choose_attempts, spread
from etude.evaluate.report.settings import ReportSettings
from etude.evaluate.report.write import write_page, write_report
from etude.pipeline.run.stage import write_json


def held(run: Path) -> dict[str, Any]:
    (text,) = re.findall(r'id="held">(.*?)</script>', (run / "report.html").read_text(), re.DOTALL)
    return json.loads(text)


def unpacked(text: str) -> bytes:
    return gzip.decompress(b64decode(text))


def settings(**given: Any) -> ReportSettings:
    return ReportSettings(**given)


def test_it_holds_every_page_s_answer_and_the_figures_of_every_attempt(tmp_path: Path, make_run: Callable) -> None:
    write_report(make_run(tmp_path, groups=12), settings())
    found = held(tmp_path)
    assert {"run", "advisories", "curves", "fleet", "weights", "audit", "rollouts"} <= found["packed"].keys()
    assert len(Columns.unpack(unpacked(found["packed"]["rollouts"]))) == 48
    whole = [name for name in found["packed"] if name.startswith("rollout/")]
    assert len(whole) == 48 and json.loads(found["still"]) == {"run": tmp_path.name, "whole": 48, "attempts": 48}
    one = json.loads(unpacked(found["packed"]["rollout/7"]))
    assert one["segments"] and one["transcript"] and one["parts"]


@pytest.mark.parametrize("limits", [{"rollouts": 10}, {"rollout_mb": 0.02}, {"rollouts": 0}])
def test_what_there_is_no_room_for_is_left_out_and_counted(
    tmp_path: Path, make_run: Callable, limits: dict[str, Any]
) -> None:
    write_report(make_run(tmp_path, groups=12), settings(**limits))
    found = held(tmp_path)
    whole = [text for name, text in found["packed"].items() if name.startswith("rollout/")]
    assert json.loads(found["still"])["whole"] == len(whole) <= limits.get("rollouts", 47)
    assert sum(map(len, whole)) <= 1e6 * limits.get("rollout_mb", 100)
    assert "--serve" in (tmp_path / "report.html").read_text()


def test_the_same_files_give_the_same_page(tmp_path: Path, make_run: Callable) -> None:
    write_report(make_run(tmp_path), settings())
    first = (tmp_path / "report.html").read_bytes()
    write_page(tmp_path, settings())
    assert (tmp_path / "report.html").read_bytes() == first


def test_an_attempt_that_can_not_be_read_is_named_and_the_others_stand(tmp_path: Path, make_run: Callable) -> None:
    write_report(make_run(tmp_path, groups=8), settings())
    (tmp_path / "rl" / "groups" / "000001.zst").write_bytes(b"bad")
    write_report(tmp_path, settings())
    found = held(tmp_path)
    problems = json.loads(unpacked(found["packed"]["run"]))["problems"]
    assert "attempt 4" in problems and "rollout/0" in found["packed"] and "rollout/4" not in found["packed"]


def test_flagged_attempts_come_first_then_all_kinds_take_turns() -> None:
    columns = Columns()
    for n in range(40):
        columns.add(source="rl", policy="rl", outcome=float(n % 4 == 0), file="" if n % 2 else f"{n}.jsonl")
    columns.add(source="bench", policy="nop", outcome=0.0)  # no session: nothing but figures
    order = list(choose_attempts(columns, [7]))
    assert order[0] == 7 and sorted(order) == list(range(40))
    assert {row % 4 for row in order[1:3]} == {0, 2}  # solved and not, both kept
    assert all(row % 2 == 0 for row in order[1:21])


@given(st.integers(1, 300), st.integers(1, 300))
def test_any_beginning_of_the_spread_covers_the_whole(count: int, taken: int) -> None:
    order = spread(count)
    assert sorted(order) == list(range(count))
    seen = sorted(order[:taken])
    gaps = [b - a for a, b in zip([-1, *seen], [*seen, count], strict=True)]
    assert max(gaps) <= max(2, 4 * -(-count // len(seen)))


def test_a_run_that_trained_on_nothing_has_a_report_with_null_for_its_figures_and_says_where(
    tmp_path: Path, make_run: Callable
) -> None:
    run = make_run(tmp_path)
    figures = {"k3": math.nan, "p99": math.nan}
    point = {
        "step": 0,
        "pass_rate": 0.0,
        "reward": 0.0,
        "drift_k3": math.nan,
        "drift_p99": math.nan,
        "entropy": math.nan,
    }
    summary = {
        "steps": 1,
        "curve": [point],
        "drift": figures,
        "mismatch": figures | {"routes_equal": True},
        "times": {},
        "alarms": [],
    }
    write_json(run / "rl" / "summary.json", summary)
    write_json(run / "stages.json", {"rl": {"seconds": 1.0, "core_seconds": 1.0}})
    write_report(run, settings())
    report = json.loads(
        (run / "report.json").read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )
    assert report["rl"]["drift"]["k3"] is None and report["not_finite"]["/rl/drift/k3"] == "nan"
    (found,) = [advisory for advisory in report["advisories"] if advisory["name"] == "not_a_number"]
    assert "rl/curve/0/drift_k3 is nan" in found["said"]
    assert "healthy" not in (run / "report.html").read_text()
