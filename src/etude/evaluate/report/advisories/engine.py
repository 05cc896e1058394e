"""All rules over one history: alarms first; hints only of a run without any."""

from __future__ import annotations

from etude.evaluate.report.advisories.advisory import Advisory
from etude.evaluate.report.advisories.hints import HINTS
from etude.evaluate.report.advisories.history import RunState
from etude.evaluate.report.advisories.learning import LEARNING
from etude.evaluate.report.advisories.work import WORK

ALARMS = (*WORK, *LEARNING)


def judge(history: RunState) -> list[Advisory]:
    """Every alarm in the order of the rules; else every hint."""
    alarms = [found for rule in ALARMS for found in rule(history)]
    return alarms or [found for rule in HINTS for found in rule(history)]
