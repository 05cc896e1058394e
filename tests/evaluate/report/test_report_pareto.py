"""The plot says what the report says: the front, the intervals, and labels that never stand on one another."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.evaluate.report.pareto.draw import (
    FRAME,
    best_points,
    cost_axis,
    draw,
    format_value,
    score_axis,
    staircase,
    ticks,
)
from etude.evaluate.report.pareto.labels import Box, LabelRequest, crosses, place
from etude.evaluate.report.pareto.points import NoPareto, Point, axes_of, curves, heading, read_report

SVG = "{http://www.w3.org/2000/svg}"


def entry(name: str, effort: str, score: float, cost: float, **more: Any) -> dict[str, Any]:
    interval = [score - 4, score + 4]
    axes = {"tokens": {"value": cost, "ci95": [cost * 0.9, cost * 1.1]}}
    best = {"1": score, "2": score + 5, "4": score + 8}
    return {
        "name": name,
        "effort": effort,
        "key": f"{name}@{effort}",
        "avg": score,
        "ci95": interval,
        "axes": axes,
        "best_of": best,
    } | more


REPORT = {
    "suite": {"name": "real", "version": "2"},
    "tasks": 40,
    "policies": [
        entry("ours", "high", 60.0, 4000.0), entry("ours", "low", 40.0, 900.0), entry("ours", "medium", 52.0, 1800.0),
        entry("big <b>", "low", 50.0, 5000.0), entry("big <b>", "high", 66.0, 30000.0),
    ],
}  # fmt: skip


def test_the_front_is_who_no_one_beats_at_their_price() -> None:
    found = curves(REPORT, "tokens")
    assert [(p.name, p.on_front) for own in found.values() for p in own] == [
        ("ours, low", True), ("ours, medium", True), ("ours, high", True), ("big <b>, low", False), ("big <b>, high", True),
    ]  # fmt: skip


def test_the_reports_own_front_is_taken_and_whoever_does_not_compete_is_left_out() -> None:
    rows = [
        {
            "key": "ours@low",
            "score": 40.0,
            "score_ci95": [36, 44],
            "cost": 900.0,
            "cost_ci95": [800, 1000],
            "on_front": True,
            "share": 0.97,
        }
    ]
    [[point]] = curves(REPORT | {"pareto": {"tokens": rows}}, "tokens").values()
    assert (point.policy, point.share, point.best_of[4]) == ("ours", 0.97, 48.0)
    assert axes_of(REPORT | {"pareto": {"dollars": rows}}) == ["dollars"] and axes_of(REPORT) == ["tokens"]


def test_what_cannot_be_drawn_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoPareto, match="no policy of this report has dollars; there is tokens"):
        curves(REPORT, "dollars")
    with pytest.raises(NoPareto, match="there is no axis 'euros'"):
        curves(REPORT, "euros")
    with pytest.raises(NoPareto, match="no report.json"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text(json.dumps(REPORT))
    assert heading(read_report(tmp_path)) == "real@2: 40 tasks"


@pytest.mark.parametrize("best_of", [False, True])
def test_the_drawing_is_one_svg_with_a_cross_and_a_marker_for_every_point(best_of: bool) -> None:
    svg = draw(curves(REPORT, "tokens"), "tokens", title="<title>", best_of=best_of)
    root = ET.fromstring(svg)
    marks = [e for e in root.iter() if "mark" in (e.get("class") or "").split()]
    assert len([e for e in root.iter(f"{SVG}path") if e.get("class") == "cross"]) == len(marks) == 5
    assert sum("on" in (e.get("class") or "").split() for e in marks) == 4
    assert len([e for e in root.iter(f"{SVG}path") if e.get("class") == "best"]) == (5 if best_of else 0)
    assert "(log scale)" in svg and "<b>" not in svg and "&lt;title&gt;" in svg
    assert {e.text for e in root.iter(f"{SVG}text") if e.get("class") == "policy"} == {"ours", "big <b>"}


def test_an_svg_is_self_contained() -> None:
    svg = draw(curves(REPORT, "tokens"), "tokens", theme="light")
    assert (
        not re.search(r"href|@import|url\(|<script", svg)
        and svg.count("<style>") == 1
        and 'class="pareto light"' in svg
    )


def test_best_of_k_costs_k_times_as_much() -> None:
    [_, medium, _], _ = curves(REPORT, "tokens").values()
    assert best_points(medium) == [(1800.0, 52.0), (3600.0, 57.0), (7200.0, 60.0)]


def point(cost: float, score: float, on_front: bool = True) -> Point:
    return Point("p", "", score, (score, score), cost, (cost, cost), on_front)


def test_steps_give_the_best_score_for_a_price() -> None:
    found = staircase([point(5, 60), point(1, 40), point(9, 10, on_front=False), point(3, 50)])
    assert found == [(1, 40), (3, 40), (3, 50), (5, 50), (5, 60)]


spots = st.lists(
    st.tuples(st.text("abcdefgh漢-", min_size=1, max_size=18), st.floats(FRAME.left, FRAME.right), st.floats(FRAME.top, FRAME.bottom)),
    max_size=40,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(spots)
def test_labels_never_overlap_each_other_nor_a_marker_nor_leave_the_frame(
    found: list[tuple[str, float, float]],
) -> None:
    wanted = [LabelRequest(text, x, y, 5.5, 12.0) for text, x, y in found]
    markers = [Box(x - 5.5, y - 5.5, x + 5.5, y + 5.5) for _, x, y in found]
    boxes = [placed.box for placed in place(wanted, FRAME, markers) if placed is not None]
    assert all(box.within(FRAME) and not any(box.overlaps(m) for m in markers) for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_few_labels_all_find_a_place() -> None:
    wanted = [LabelRequest(f"policy {n}", 380.0 + n, 200.0, 5.5, 12.0) for n in range(12)]
    assert None not in place(wanted, FRAME, [])


def test_a_label_is_nearer_to_its_own_point_than_to_any_other() -> None:
    wanted = [
        LabelRequest(text, x, 200.0, 5.5, 11.0) for text, x in (("medium", 300.0), ("high", 318.0), ("low", 340.0))
    ]
    markers = [Box(w.x - 5.5, w.y - 5.5, w.x + 5.5, w.y + 5.5) for w in wanted]

    def away(box: Box, label: LabelRequest) -> float:
        return max(box.left - label.x, label.x - box.right, 0.0) + max(box.top - label.y, label.y - box.bottom, 0.0)

    for label, placed in zip(wanted, place(wanted, FRAME, markers), strict=True):
        assert placed is not None
        assert away(placed.box, label) == min(away(placed.box, other) for other in wanted)


def test_efforts_that_make_no_difference_share_their_label_and_the_front_lies_on_top() -> None:
    same = [entry("p", "low", 30.0, 50.0), entry("p", "medium", 40.0, 90.0), entry("p", "high", 40.0, 90.01)]
    root = ET.fromstring(draw(curves(REPORT | {"policies": same}, "tokens"), "tokens"))
    assert {e.text for e in root.iter(f"{SVG}text") if e.get("class") == "effort"} == {"low", "medium, high"}
    marks = [e for e in root.iter(f"{SVG}circle") if "mark" in (e.get("class") or "").split()]
    assert ["on" in (e.get("class") or "").split() for e in marks] == [False, True, True]


def test_money_is_an_axis_of_its_own() -> None:
    priced = [
        entry("big", effort, score, 4000.0)
        | {"passes": 4, "axes": {"dollars": {"value": cost, "ci95": [cost / 2, cost * 2]}}}
        for effort, score, cost in (("low", 50.0, 0.004), ("high", 60.0, 0.09))
    ]
    report = REPORT | {"policies": priced}
    svg = draw(curves(report, "dollars"), "dollars", title=heading(report))
    assert "dollars an attempt (log scale)" in svg and ">$0.01<" in svg and "real@2: 40 tasks, 4 passes" in svg


def test_a_line_crosses_a_box_where_it_runs_through_it() -> None:
    box = Box(0, 0, 10, 10)
    assert crosses((-5, 5, 15, 5), box) and crosses((2, 2, 3, 3), box) and crosses((-1, 5, 11, 6), box)
    assert not crosses((-5, 11, 15, 11), box) and not crosses((-5, 4, 4, -8), box) and not crosses((11, 0, 11, 10), box)


def test_an_axis_is_logarithmic_where_it_spans_a_decade() -> None:
    assert cost_axis([1, 10], 0, 1).log and not cost_axis([1, 9.9], 0, 1).log and not cost_axis([0, 100], 0, 1).log


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=8))
def test_ticks_are_few_and_on_the_axis(values: list[float]) -> None:
    axis = cost_axis(values, 0.0, 640.0)
    found = ticks(axis)
    assert len(found) <= 10 and all(axis.low <= tick <= axis.high for tick in found)
    assert all(axis.low <= value <= axis.high for value in values)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_scores_stay_percent_and_noise_does_not_fill_the_plot(values: list[float]) -> None:
    axis = score_axis(values, 400.0, 0.0)
    assert 0 <= axis.low <= min(values) and max(values) <= axis.high <= 100 and axis.high - axis.low >= 4.99


def test_costs_are_reported_shortly() -> None:
    assert [format_value(v, "tokens") for v in (40, 1500, 20_000, 3e6)] == ["40", "1.5k", "20k", "3M"]
    assert [format_value(v, "dollars") for v in (0.002, 1.5, 12_000)] == ["$0.002", "$1.5", "$12,000"]
