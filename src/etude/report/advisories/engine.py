"""All rules over one history: alarms first; hints only of a run without any."""

from __future__ import annotations

from etude.report.advisories.advisory import Advisory
from etude.report.advisories.hints import HINTS
from etude.report.advisories.history import History
from etude.report.advisories.learning import LEARNING
from etude.report.advisories.work import WORK

ALARMS = (*WORK, *LEARNING)


def judge(history: History) -> list[Advisory]:
    """Every alarm in the order of the rules; else every hint."""
    alarms = [found for rule in ALARMS for found in rule(history)]
    return alarms or [found for rule in HINTS for found in rule(history)]
