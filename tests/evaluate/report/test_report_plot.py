"""Charts put every point inside the frame, whatever the numbers."""

import re

from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.report.plot import HEIGHT, WIDTH, Axis, Bar, PlotLine, bar_chart, line_chart, nice_ticks

values = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(values, values), max_size=30), st.booleans(), st.booleans())
def test_every_drawn_point_lies_inside_the_picture(points, log_x, log_y):
    line = PlotLine("a", [x for x, _ in points], [y for _, y in points], dashed=log_y)
    svg = line_chart([line], x_title="x", y_title="y", log_x=log_x, log_y=log_y)
    for x, y in re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', svg):
        assert 0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT


@given(values, st.floats(1e-3, 1e6))
def test_ticks_are_few_and_in_range(low, span):
    ticks = nice_ticks(low, low + span)
    assert 1 <= len(ticks) <= 8 and all(low - 1e-6 * span <= t <= low + span * (1 + 1e-6) for t in ticks)


def test_decades_are_thinned_so_that_labels_do_not_touch():
    ticks = Axis(1e-13, 1e-2, 0, 100, log=True).ticks()
    assert 4 <= len(ticks) <= 9 and all(1e-13 <= tick <= 1e-2 for tick in ticks)


def test_a_chart_of_nothing_is_nothing():
    assert line_chart([PlotLine("a", [0], [0])], x_title="", y_title="", log_y=True) == ""
    assert bar_chart([], y_title="") == ""


def test_bars_say_their_value_and_interval():
    svg = bar_chart([Bar("SFT", 20.0, 15.0, 25.0)], y_title="%")
    assert "SFT: 20.0 [15.0, 25.0]" in svg
