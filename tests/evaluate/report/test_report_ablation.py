"""The ablation's figure shows every run, the line and its band, as a file of its own."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from etude.evaluate.bench.regression import fit, student_quantile
from etude.evaluate.report.ablation import figure, fitted_line, standalone, verdict

POINTS = [
    {"budget": budget, "seed": seed, "loss": 3.0 - 0.2 * place + 0.05 * seed, "bits_per_byte": 1.0, "reward": 10 + 4 * place}
    for place, budget in enumerate((1_000, 10_000, 100_000, 1_000_000))
    for seed in (0, 1)
]  # fmt: skip
FIT = {"slope": -20.0, "ci95": [-24.0, -16.0], "intercept": 70.0, "verdict": "lower loss, <higher> reward"}
ABLATION = {"points": POINTS, "fit": FIT}


def test_every_run_is_a_point_and_every_budget_has_a_key():
    drawn = figure(ABLATION)
    assert drawn.count("<circle") == len(POINTS) and drawn.count("budget 1,000,000") == 3  # two titles and the key
    assert "<polygon" in drawn and "stroke-dasharray" in drawn


def test_without_a_fit_there_is_no_line_and_without_points_no_figure():
    assert "<polygon" not in figure(ABLATION | {"fit": None})
    assert figure({"points": [], "fit": None}) == ""
    assert "too few points for a line" in standalone(ABLATION | {"fit": None})
    with pytest.raises(ValueError, match="no points yet"):
        standalone({"points": [], "fit": None})


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_band_is_least_squares_own(seeds: int):
    """Against the covariance of all coefficients, (X'X)^-1 s^2, of the line with the mean of the seeds' intercepts."""
    draw = np.random.default_rng(0)
    seed = np.repeat(np.arange(seeds), 6)
    xs = draw.uniform(1, 3, len(seed)) + 0.5 * seed
    ys = 5 - 2 * xs + 3 * seed + draw.normal(0, 0.3, len(seed))
    found = fit(list(xs), list(ys), list(seed))
    design = np.column_stack([xs, *(seed == s for s in range(seeds))]).astype(float)
    coefficients, residual = np.linalg.lstsq(design, ys, rcond=None)[:2]
    freedom = len(xs) - seeds - 1
    covariance = np.linalg.inv(design.T @ design) * residual[0] / freedom
    points = [{"seed": s, "loss": x, "reward": y} for s, x, y in zip(seed, xs, ys, strict=True)]
    figures = {"slope": found.slope, "ci95": [found.low, found.high], "intercept": found.intercept}
    line = fitted_line(points, figures)
    for x, (low, high) in zip(line.xs, line.band, strict=True):
        at = np.array([x, *[1 / seeds] * seeds])
        half = student_quantile(freedom) * math.sqrt(at @ covariance @ at)
        assert low == pytest.approx(at @ coefficients - half) and high == pytest.approx(at @ coefficients + half)


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
