"""Alarms of drift stand in the chart of RL's reward by number, and in words below; a run that looked and found none says so."""

from __future__ import annotations

from typing import Any

from etude.evaluate.report.charts import rewards
from etude.evaluate.report.page import sections
from etude.rl.rewards.alarms import REFERENCE

CURVE = [{"step": step, "pass_rate": 0.2 + 0.01 * step} for step in range(40)]


def learning(**rl: Any) -> str:
    report = {"rl": {"curve": CURVE, **rl}}
    return "".join(sections(report, {})["Learning curves"]())


def test_every_alarm_is_drawn_where_it_was_raised_and_reported_with_its_cause():
    alarms = [{"step": 33, "text": "component: raw_x went from 1 to 0 <b>"}, {"step": 38, "text": "broken_calls: more"}]
    page = learning(alarms=alarms)
    assert page.count('class="moment"') == 2 and "Uprights: alarms of drift" in page
    assert "component: raw_x went from 1 to 0 &lt;b&gt;" in page and "<b>" not in page.replace("<b class", "")
    for cells in (("1", "33"), ("2", "38")):
        assert f"<td>{cells[0]}</td><td>{cells[1]}</td>" in page
    first, second = (page.index(word) for word in ("component: raw_x", "broken_calls: more"))
    assert first < second


def test_none_is_reported_as_none_and_a_run_that_did_not_look_claims_nothing():
    assert f"No alarm of drift (figures are held against their first {REFERENCE} steps)" in learning(alarms=[])
    assert "alarm" not in learning() and 'class="moment"' not in rewards({"rl": {"curve": CURVE}})
