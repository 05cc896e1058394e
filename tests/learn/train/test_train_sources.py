"""Documents in pieces of like length: every token once an epoch, none across documents, and a resumed source goes on exactly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.packing import PackedRows
from etude.learn.corpus.shards import TokenShards, write_shards
from etude.learn.train.checkpoint import load_state, newest_state, save_state
from etude.learn.train.loop import OtherData
from etude.learn.train.pretrain import run_pretrain
from etude.learn.train.settings import LoopSettings, PhaseSettings
from etude.learn.train.sources import PackedSource, PieceSource


def alone(shards: TokenShards, seed: int) -> Mixture:
    return Mixture({"all": shards}, {"all": 1.0}, seed)


def epoch(source: PieceSource, tokens: int) -> list[tuple[int, ...]]:
    """The rows of batches until `tokens` tokens were seen."""
    rows, seen = [], 0
    while seen < tokens:
        batch = source.next()
        assert batch.documents is None and not batch.weights[:, 0].any()
        assert torch.equal(batch.weights[:, 1:] > 0, batch.real[:, 1:])
        for ids, real in zip(batch.ids, batch.real, strict=True):
            rows.append(tuple(ids[real].tolist()))
        seen += batch.token_count
    return rows


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(2, 60), min_size=1, max_size=30), piece=st.integers(2, 20))
def test_an_epoch_holds_every_piece_of_every_document_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], piece: int
) -> None:
    starts = np.cumsum([0, *lengths])
    documents = [list(range(a, b)) for a, b in zip(starts, starts[1:], strict=False)]  # no token occurs twice
    shards = write_shards(tmp_path_factory.mktemp("shards"), documents)
    wanted = [tuple(d[i : i + piece]) for d in documents for i in range(0, len(d), piece)]
    wanted = [row for row in wanted if len(row) > 1]
    source = PieceSource(alone(shards, 3), piece, 64)
    tokens = sum(map(len, wanted))
    for _ in range(2):
        assert Counter(epoch(source, tokens)) == Counter(wanted)


def test_a_restored_source_gives_the_very_batches_that_were_left(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [list(range(n, n + 9)) for n in range(50)])
    whole = PieceSource(alone(shards, 1), 8, 64)
    for _ in range(5):
        whole.next()
    again = PieceSource(alone(shards, 1), 8, 64)
    again.restore(whole.state())
    for _ in range(20):  # into the next epoch
        assert torch.equal(whole.next().ids, again.next().ids)


@pytest.mark.parametrize("packing", [True, False])
def test_a_restored_mixture_gives_the_very_batches_that_were_left(tmp_path: Path, packing: bool) -> None:
    shards = {
        name: write_shards(tmp_path / name, [list(range(n, n + length)) for n in range(40)])
        for name, length in (("short", 5), ("long", 90))
    }

    def source() -> PackedSource | PieceSource:
        mixture = Mixture(shards, {"short": 0.7, "long": 0.3}, seed=2)
        return PackedSource(PackedRows(mixture, 16), 4) if packing else PieceSource(mixture, 16, 64)

    whole, again = source(), source()
    for _ in range(70):
        whole.next()
    again.restore(whole.state())
    for _ in range(70):  # into the next epoch
        assert torch.equal(whole.next().ids, again.next().ids)


@pytest.mark.parametrize("packing", [True, False])
def test_the_digest_names_tokens_and_shares_and_not_the_lengths_alone(tmp_path: Path, packing: bool) -> None:
    def source(name: str, *ids: int, shares: tuple[float, float] = (0.5, 0.5)) -> PackedSource | PieceSource:
        made = {part: write_shards(tmp_path / name / part, [[7, *ids, 9]] * 20, vocabulary=100) for part in ("a", "b")}
        mixture = Mixture(made, dict(zip("ab", shares, strict=True)), 0)
        return PackedSource(PackedRows(mixture, 16), 2) if packing else PieceSource(mixture, 16, 64)

    first = source("1", 1, 2, 3)
    assert first.digest == source("2", 1, 2, 3).digest
    others = [source("3", 1, 2, 4), source("4", 3, 2, 1), source("5", 1, 2, 3, shares=(0.25, 0.75))]
    assert len({first.digest, *(other.digest for other in others)}) == 4
    assert {first.former_digest} == {other.former_digest for other in others}
    assert source("6", 1, 2).former_digest != first.former_digest


def test_a_resumed_phase_refuses_other_texts_of_the_same_lengths_and_goes_on_from_an_earlier_release(
    tmp_path: Path, make
) -> None:
    settings = [
        PhaseSettings(row_tokens=16, batch_rows=2, loop=LoopSettings(steps=steps, checkpoint_every=2))
        for steps in (2, 4)
    ]
    first, other = (alone(write_shards(tmp_path / str(n), [[n, 2, 3, 4]] * 30), 0) for n in (5, 6))
    out = tmp_path / "out"
    run_pretrain("base", settings[0], make.model(), first, out, EventLog.null())
    with pytest.raises(OtherData, match="was trained on other data than this run has"):
        run_pretrain("base", settings[1], make.model(), other, out, EventLog.null())
    path = newest_state(out / "state")
    assert path is not None
    former = PackedSource(PackedRows(first, 16), 2).former_digest
    save_state(out / "state", 2, load_state(path) | {"data": former}, 2)
    assert run_pretrain("base", settings[1], make.model(), first, out, EventLog.null()).steps == 4
    path = newest_state(out / "state")
    assert path is not None and load_state(path)["data"] not in ("", former)


def test_documents_of_one_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of 3 documents is longer than a token"):
        PieceSource(alone(write_shards(tmp_path, [[1], [2], [3]]), 0), 8, 64)
