"""What checkpoints are judged by: the same documents whenever it is asked, cut alike, with the bytes they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.learn.corpus.shards import write_shards
from etude.learn.train.evaluate import HeldOutTexts


def decode(ids: list[int]) -> str:
    return "ab" * len(ids)


def test_documents_are_spread_evenly_and_cut(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [[n] * 9 for n in range(30)])
    held = HeldOutTexts.of(shards, decode, most=4, longest=5)
    assert [ids.tolist() for ids in held.documents] == [[n] * 5 for n in (0, 10, 19, 29)]
    assert held.total_bytes == 4 * 5 * 2
    assert (held + held).total_bytes == 80 and len(HeldOutTexts.of(shards, decode, 100, 5).documents) == 30


def test_figures_of_parts_together_are_those_of_the_whole(model, tmp_path: Path) -> None:
    first = HeldOutTexts.of(write_shards(tmp_path / "a", [[1, 2, 3, 4]] * 3), decode, 9, 9)
    second = HeldOutTexts.of(write_shards(tmp_path / "b", [[5, 6, 7]] * 2), decode, 9, 9)
    together = (first.bits_per_byte(model, 9) * 24 + second.bits_per_byte(model, 9) * 12) / 36
    assert (first + second).bits_per_byte(model, 9) == pytest.approx(together, rel=1e-5)


def test_nothing_to_judge_by_is_refused(model, tmp_path: Path) -> None:
    alone = HeldOutTexts.of(write_shards(tmp_path, [[1]]), decode, 9, 9)  # a lone token predicts nothing
    with pytest.raises(ValueError, match="no document is held out"):
        alone.bits_per_byte(model, 9)
