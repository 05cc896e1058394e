"""Shares add up to the whole, a part keeps its colour, and what is too much to show is summed up as `other`."""

import re

from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.report.composition import MOST_PARTS, OTHER, fold, pie, rows, stacked_bars
from etude.evaluate.report.plot import WIDTH

counts = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 10**9), max_size=30)


@given(counts)
def test_folding_loses_nothing_and_keeps_the_largest(parts):
    folded = fold(parts)
    assert sum(folded.values()) == sum(parts.values()) and len(folded) <= MOST_PARTS + 1
    assert all(value > 0 for value in folded.values())


@given(st.dictionaries(st.text(min_size=1, max_size=8), counts, max_size=4))
def test_every_stacked_bar_is_as_long_as_its_whole_and_stays_inside(bars):
    svg = stacked_bars(bars)
    drawn = {name: parts for name, parts in bars.items() if sum(parts.values())}
    assert (svg == "") == (not drawn)
    for x, width in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg):
        assert float(x) + float(width) <= WIDTH + 0.2


@given(counts)
def test_a_pie_is_whole(parts):
    shares = [float(share) for share in re.findall(r'stroke-dasharray="([\d.]+) 100"', pie(parts))]
    assert (abs(sum(shares) - 100) < 0.01 * len(shares)) if any(parts.values()) else shares == []


def test_a_part_has_one_colour_in_every_bar():
    svg = stacked_bars({"a": {"x": 3, "y": 1}, "b": {"y": 3, "x": 1}})
    colours = dict(re.findall(r'fill="(var\(--c\d\))"[^>]*><title>(?:a|b), (x|y)', svg))
    assert len(colours) == 2 and len(re.findall(r"<rect", svg)) == 4


def test_a_missing_part_is_no_part_of_other():
    assert OTHER not in stacked_bars({"a": {"x": 1, "y": 0}, "b": {"x": 0, "z": 2}})


def test_rows_keep_their_order_where_it_means_something_and_escape_their_names():
    assert rows({"2 <alike>": 1, "3": 9}, ordered=True).index("&lt;alike&gt;") < rows({"2": 1, "3": 9}).index("9")
    assert rows({"a": 1, "b": 9}).index("b") < rows({"a": 1, "b": 9}).index(">a<")
    assert rows({}) == ""
