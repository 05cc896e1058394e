"""Trainer minus sampler by token: read back as written, to half precision, whatever the lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etude.core.trace.gap_file import LARGEST, read_gaps, write_gaps


def test_each_rollout_s_gaps_come_back_in_order(tmp_path: Path) -> None:
    gaps = [np.array([0.5, -0.25, 0.0], np.float32), np.zeros(0, np.float32), np.array([1e-4], np.float32)]
    path = tmp_path / "gaps" / "000001.npy"
    write_gaps(path, gaps)
    for number, expected in enumerate(gaps):
        assert read_gaps(path, number) == pytest.approx(expected, rel=1e-3)
    assert [entry.name for entry in path.parent.iterdir()] == ["000001.npy"]


def test_what_is_no_number_keeps_its_place(tmp_path: Path) -> None:
    write_gaps(tmp_path / "g.npy", [np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)])
    assert read_gaps(tmp_path / "g.npy", 0) == pytest.approx([LARGEST, LARGEST, -LARGEST, 1.0], rel=1e-3)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError):
        read_gaps(tmp_path / "g.npy", 0)
