"""The ablation's figure shows every run, the line and its band, on a page and as a file of its own."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from etude.report.ablation import figure, fitted, standalone, verdict

POINTS = [
    {"budget": budget, "seed": seed, "loss": 3.0 - 0.2 * place + 0.05 * seed, "bits_per_byte": 1.0, "reward": 10 + 4 * place}
    for place, budget in enumerate((1_000, 10_000, 100_000, 1_000_000))
    for seed in (0, 1)
]  # fmt: skip
FIT = {"slope": -20.0, "ci95": [-24.0, -16.0], "intercept": 70.0, "verdict": "lower loss, <higher> reward"}
ABLATION = {"x": "loss", "y": "reward", "points": POINTS, "fit": FIT}


def test_every_run_is_a_point_and_every_budget_has_a_key():
    drawn = figure(ABLATION)
    assert drawn.count("<circle") == len(POINTS) and drawn.count("budget 1,000,000") == 3  # two titles and the key
    assert "<polygon" in drawn and "stroke-dasharray" in drawn


def test_without_a_fit_there_is_no_line_and_without_points_no_figure():
    assert "<polygon" not in figure({key: ABLATION[key] for key in ("x", "y", "points")})
    assert figure(ABLATION | {"points": []}) == ""
    with pytest.raises(ValueError, match="no points yet"):
        standalone(ABLATION | {"points": []})


def test_the_band_is_least_squares_own():
    """Against the textbook's: line(x) ± t·s·√(1/n + (x - x̄)²/Sxx), with s and t that the slope's interval was made of."""
    draw = np.random.default_rng(0)
    xs = draw.uniform(1, 3, 9)
    ys = 5 - 2 * xs + draw.normal(0, 0.3, 9)
    slope, intercept = np.polyfit(xs, ys, 1)
    spread = float(((xs - xs.mean()) ** 2).sum())
    s = math.sqrt(float(((ys - intercept - slope * xs) ** 2).sum()) / 7)
    t = 2.365  # Student's, 7 degrees of freedom, 95%
    arm = t * s / math.sqrt(spread)
    line = fitted(list(xs), {"slope": slope, "ci95": [slope - arm, slope + arm], "intercept": intercept})
    for x, (low, high) in zip(line.xs, line.band, strict=True):
        half = t * s * math.sqrt(1 / 9 + (x - xs.mean()) ** 2 / spread)
        assert low == pytest.approx(intercept + slope * x - half) and high == pytest.approx(
            intercept + slope * x + half
        )


def test_one_budget_or_one_point_is_drawn_without_fail():
    for count in (1, 2):
        assert figure(ABLATION | {"points": POINTS[:count]}).count("<circle") == count


def test_the_file_alone_is_well_formed_and_brings_its_colours_and_words():
    text = standalone(ABLATION)
    root = ElementTree.fromstring(text)
    assert (
        root.tag.endswith("svg")
        and "prefers-color-scheme" in text
        and "http" not in text.replace("http://www.w3.org", "")
    )
    assert not set(re.findall(r"var\((--\w+)\)", text)) - set(re.findall(r"(--\w+):", text))
    words = " ".join("".join(root.itertext()).split())
    assert "budget 10,000" in words and "lower loss, <higher> reward: slope -20" in words


def test_the_verdict_gives_the_interval_and_the_number_of_runs():
    assert verdict(ABLATION) == "lower loss, <higher> reward: slope -20, 95% [-24, -16], over 8 runs."
