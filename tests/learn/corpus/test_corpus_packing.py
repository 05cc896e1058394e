"""Packing loses nothing, mixes no documents, and goes on exactly where a cursor says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.packing import Cursor, PackedRows, bucket_by_length
from etude.learn.corpus.shards import ShardWriter, TokenShards, write_shards

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), min_size=1, max_size=30), min_size=1, max_size=20)


def rows_of(shards, length, seed, cursor=None):
    return PackedRows(Mixture({"all": shards}, {"all": 1.0}, seed), length, cursor)


@given(DOCUMENTS, st.integers(5, 64))
@settings(deadline=None, max_examples=50)
def test_shards_return_the_documents(tmp_path_factory, documents, shard_tokens):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, documents, shard_tokens)
    shards = TokenShards(folder)
    assert [shards.document(i).tolist() for i in range(len(shards))] == documents
    assert shards.total_tokens == sum(map(len, documents))


@given(DOCUMENTS, st.integers(2, 16), st.integers(0, 3))
@settings(deadline=None, max_examples=50)
def test_an_epoch_is_every_document_once_in_a_seeded_order(tmp_path_factory, documents, length, epoch):
    # Token values are made unique, so that each can be followed.
    numbered = np.split(np.arange(sum(map(len, documents))), np.cumsum([len(d) for d in documents])[:-1])
    shards = write_shards(tmp_path_factory.mktemp("shards"), [d.tolist() for d in numbered])
    if shards.total_tokens < length:
        with pytest.raises(ValueError, match="fewer than one row"):
            rows_of(shards, length, seed=1)
        return
    rows = rows_of(shards, length, seed=1)
    packed = [rows.row(epoch, r) for r in range(rows.rows_of(epoch))]
    ids = np.concatenate([row.ids for row in packed])
    assert len(set(ids.tolist())) == len(ids) == rows.rows_of(epoch) * length
    owner = np.concatenate([np.full(len(d), i) for i, d in enumerate(numbered)])
    for row in packed:
        same = np.diff(row.documents) == 0
        assert (np.diff(row.ids)[same] == 1).all()  # inside a document tokens follow each other
        assert ((np.diff(owner[row.ids]) == 0) == same).all()  # and numbers change exactly where documents do


def test_reading_goes_on_exactly_at_a_cursor(tmp_path):
    rng = np.random.default_rng(0)
    shards = write_shards(tmp_path, [rng.integers(0, 500, rng.integers(1, 50)).tolist() for _ in range(40)])
    straight = rows_of(shards, 16, seed=3)
    an_epoch = straight.rows_of(0)
    expected = [straight.next() for _ in range(3 * an_epoch)]
    for cut in (0, 1, an_epoch, 2 * an_epoch - 1):
        first = rows_of(shards, 16, seed=3)
        for _ in range(cut):
            first.next()
        second = rows_of(TokenShards(tmp_path), 16, seed=3, cursor=Cursor(first.cursor.epoch, first.cursor.row))
        for row in expected[cut:]:
            assert (second.next().ids == row.ids).all()
    assert not (expected[0].ids == expected[an_epoch].ids).all(), "epochs differ in order"


def test_an_unfinished_shard_folder_is_refused(tmp_path):
    write_shards(tmp_path, [[1, 2]])
    (tmp_path / "shards.json").unlink()
    with pytest.raises(FileNotFoundError, match="no finished token shards"):
        TokenShards(tmp_path)


def test_ids_beyond_the_vocabulary_are_refused(tmp_path):
    with pytest.raises(ValueError, match="token id 70000 is outside the vocabulary of 65536"):
        write_shards(tmp_path, [[70_000]])
    with pytest.raises(ValueError, match="token id -1 is outside"):
        write_shards(tmp_path, [[-1]])


@pytest.mark.parametrize(("vocabulary", "width"), [(768, 2), (65_536, 2), (65_537, 4), (151_936, 4)])
def test_a_large_vocabulary_takes_four_bytes_an_id_and_a_small_one_two(tmp_path, vocabulary, width):
    writer = ShardWriter(tmp_path, vocabulary)
    writer.add([0, vocabulary - 1], text_bytes=7)
    writer.add([])
    writer.add([5], text_bytes=2)
    shards = writer.finish()
    assert [shards.document(i).tolist() for i in range(len(shards))] == [[0, vocabulary - 1], [5]]
    assert (tmp_path / "tokens-00000.bin").stat().st_size == 3 * width
    assert shards.meta["vocabulary"] == vocabulary and shards.meta["bytes"] == 9 and shards.meta["tokens"] == 3
    assert shards.text_bytes.tolist() == [7, 2]


def test_no_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no text"):
        write_shards(tmp_path, [[], []])


@given(st.lists(st.integers(1, 300), max_size=200), st.integers(64, 600), st.integers(0, 2))
def test_buckets_hold_every_item_once_within_the_budget(lengths, budget, epoch):
    array = np.array(lengths, np.int64)
    batches = bucket_by_length(array, budget, seed=1, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist() if batches else []) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * array[batch].max() <= budget


def test_buckets_waste_little_padding_and_change_with_the_epoch():
    lengths = np.random.default_rng(0).integers(60, 250, 2000)
    first, second = (bucket_by_length(lengths, 2048, seed=0, epoch=e) for e in (0, 1))
    padded = sum(len(b) * lengths[b].max() for b in first)
    assert padded < 1.08 * lengths.sum()
    assert {tuple(sorted(b)) for b in first} != {tuple(sorted(b)) for b in second}
