"""A phase that forgets is stopped with the weights of its newest good check; the middle of a phase is left once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from etude.core.events.log import EventLog
from etude.learn.train.midway import Midway
from etude.learn.train.regression import Regression
from etude.learn.train.settings import RegressionSettings


class Patient:
    """A model of one number, which is also what is measured."""

    def __init__(self, folder: Path, bits: float = 1.0, **settings: float) -> None:
        self.model = nn.Linear(1, 1, bias=False)
        self.becomes(bits)
        held = RegressionSettings.model_validate({"every": 1, "bar": 0.1, "checks": 2, **settings})
        self.guard = Regression(held, self.model, self.measured, folder, "long", EventLog.null())

    def becomes(self, bits: float) -> None:
        with torch.no_grad():
            self.model.weight.fill_(bits)

    def measured(self) -> float:
        return float(self.model.weight.detach())

    def steps(self, *bits: float, first: int = 1) -> str:
        """The reason to stop, after the steps that leave these figures."""
        for step, value in enumerate(bits, first):
            self.becomes(value)
            if reason := self.guard.after(step, 0.0):
                return reason
        return ""


def test_a_phase_that_worsens_past_the_bar_is_stopped_with_the_weights_of_its_newest_good_check(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.guard.begin()
    reason = patient.steps(0.9, 0.95, 1.2, 1.3, 1.4)
    assert "step 4: 1.3000 bits" in reason and "2 checks in a row above 0.9900" in reason
    assert "those of step 2 (0.9500)" in reason and "replay" in reason
    assert patient.measured() == pytest.approx(0.95)


def test_what_gets_better_or_stays_below_the_bar_goes_on(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.guard.begin()
    assert patient.steps(1.05, 1.09, 1.0, 0.8, 0.87, 0.85) == ""


def test_one_bad_check_alone_stops_nothing(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.guard.begin()
    assert patient.steps(1.2, 1.0, 1.3, 1.05) == ""


def test_forgetting_is_measured_against_the_start_too(tmp_path: Path) -> None:
    patient = Patient(tmp_path)
    patient.guard.begin()
    assert "those of step 0 (1.0000)" in patient.steps(1.2, 1.2)
    assert patient.measured() == 1.0


def test_checks_come_every_so_many_steps(tmp_path: Path) -> None:
    patient = Patient(tmp_path, every=3)
    patient.guard.begin()
    assert patient.steps(2.0, 2.0, 2.0, 2.0, 2.0) == "" and patient.steps(2.0, first=6)


def test_a_resumed_guard_goes_on_as_if_there_had_been_no_kill(tmp_path: Path) -> None:
    killed = Patient(tmp_path)
    killed.guard.begin()
    assert killed.steps(0.9, 1.2) == ""
    resumed = Patient(tmp_path, bits=1.2)
    resumed.guard.restore(killed.guard.state())
    assert "those of step 1 (0.9000)" in resumed.steps(1.2, first=3)
    assert resumed.measured() == pytest.approx(0.9)


def test_midway_is_saved_once_after_its_share() -> None:
    saved: list[int] = []
    midway = Midway(0.5, lambda: saved.append(1))
    midway.begin()
    counts = []
    for step in range(1, 11):
        assert midway.after(step, step / 10) == ""
        counts.append(len(saved))
    assert counts == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    again = Midway(0.5, lambda: saved.append(1))
    again.restore(midway.state())
    again.after(11, 0.9)
    assert len(saved) == 1
