"""Truncation: one place, whole lines, limits kept, the loss stated exactly."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.truncation import Keep, truncate

lines = st.lists(st.text("abé ", max_size=12), min_size=1, max_size=30).map("\n".join)
keeps = st.sampled_from(["head", "tail", "both"])


@given(text=lines, max_lines=st.integers(1, 12), max_bytes=st.integers(4, 80), keep=keeps)
def test_limits_hold_and_the_loss_is_stated(text: str, max_lines: int, max_bytes: int, keep: Keep) -> None:
    cut = truncate(text, max_lines=max_lines, max_bytes=max_bytes, keep=keep)
    if cut.text == text:
        assert text.count("\n") < max_lines and len(text.encode()) <= max_bytes and cut.dropped_lines == 0
        return
    rows = cut.text.split("\n")
    [marker] = [row for row in rows if row.startswith("[")]
    kept = [row for row in rows if row is not marker]
    assert len(kept) <= max_lines and len("\n".join(kept).encode()) <= max_bytes
    stated = re.search(r"(\d+) lines dropped", marker)
    assert (int(stated[1]) if stated else 0) == cut.dropped_lines == text.count("\n") + 1 - len(kept)
    assert cut.total_lines == text.count("\n") + 1


@given(text=lines, keep=keeps)
def test_whole_lines_survive_from_the_chosen_end(text: str, keep: Keep) -> None:
    rows = text.split("\n")
    kept = [
        r for r in truncate(text, max_lines=4, max_bytes=10_000, keep=keep).text.split("\n") if not r.startswith("[")
    ]
    if len(rows) <= 4:
        assert kept == rows
    else:
        assert kept == {"head": rows[:4], "tail": rows[-4:], "both": rows[:2] + rows[-2:]}[keep]


def test_a_single_endless_line_is_cut_inside() -> None:
    cut = truncate("é" * 100, max_lines=3, max_bytes=9, keep="head")
    assert cut.text == "éééé\n[line cut]" and cut.dropped_lines == 0
    cut = truncate("a\n" + "é" * 99, max_lines=3, max_bytes=9, keep="tail")
    assert cut.text == "[line cut, 1 lines dropped]\néééé"
