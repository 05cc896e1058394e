"""Suites, price lists and rubrics of somebody else are refused in a moment, with the file's name."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.grading.rubric import RubricError, read_rubric
from etude.evaluate.bench.prices import read_prices
from etude.evaluate.bench.suites.manifest import read_manifest

READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "manifest": (read_manifest, SuiteError),
    "prices": (read_prices, SuiteError),
    "rubric": (read_rubric, RubricError),
}
HOSTILE = {
    "a long key": ".".join(["a"] * 50_000) + " = 1",
    "a deep list": "a = " + "[" * 100_000,
    "digits": "a = " + "9" * 100_000,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_toml_is_refused_in_a_moment(tmp_path: Path, reader: str, kind: str) -> None:
    read, error = READERS[reader]
    (tmp_path / "theirs.toml").write_text(HOSTILE[kind])
    start = time.process_time()
    with pytest.raises(error, match="theirs.toml"):
        read(tmp_path / "theirs.toml")
    assert time.process_time() - start < 5
