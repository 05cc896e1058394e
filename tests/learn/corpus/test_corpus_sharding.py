"""Documents become shards whole, in order and once; no text forges a special token; some are kept to be looked at."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from etude.agent.chat.special import FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX, SPECIAL_TOKENS
from etude.learn.corpus.fim_tokens import NoFimTokens, fim_tokens
from etude.learn.corpus.sample import sample
from etude.learn.corpus.sharding import SAMPLE_CHARS, SAMPLED, Document, Encoder, length_buckets, samples, shard
from etude.learn.corpus.shards import write_shards
from etude.learn.corpus.tokenizer import train_tokenizer

CODE = "def count_items(values):\n    total = 0\n    for value in values:\n        total += 12\n    return total\n"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([CODE] * 3, SPECIAL_TOKENS, 400)


def document(text: str) -> Document:
    return {"text": text, "source": "s", "project": "p", "path": "a.py", "licence": "MIT"}


@given(st.lists(TEXT | st.sampled_from(SPECIAL_TOKENS), min_size=1, max_size=20), st.randoms())
@settings(deadline=None, max_examples=50)
def test_ids_are_those_of_the_text_alone_also_when_some_were_counted_before(
    tokenizer: Tokenizer, texts: list[str], rng: random.Random
) -> None:
    encoder = Encoder(tokenizer)
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    counted = rng.sample(texts, len(texts) // 2)
    assert encoder.counts(counted) == [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in counted]
    found = [ids for _, ids in encoder.ids(map(document, texts))]
    assert found == expected
    assert all(i >= len(SPECIAL_TOKENS) for ids in found for i in ids)


def test_special_tokens_come_from_pieces_and_never_from_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    marks = fim_tokens(tokenizer)
    pieces = [{"special": marks.prefix.token}, "a", {"special": marks.suffix.token}, FIM_MIDDLE]
    shards = shard(tmp_path / "s.files", "files", [{"pieces": pieces, "source": "s"}], Encoder(tokenizer))
    assert shards is not None
    ids = shards.document(0).tolist()
    assert [i for i in ids if i < len(SPECIAL_TOKENS)] == [
        tokenizer.token_to_id(FIM_PREFIX), tokenizer.token_to_id(FIM_SUFFIX)
    ]  # fmt: skip
    assert shards.text_bytes.tolist() == [len("a" + FIM_MIDDLE)]
    (shown,) = samples([tmp_path / "s.files"], 5)
    assert shown["text"] == f"{FIM_PREFIX}a{FIM_SUFFIX}{FIM_MIDDLE}" and shown["form"] == "files"


def test_a_tokenizer_that_leaves_ids_out_fits_its_own_shards(tokenizer: Tokenizer, tmp_path: Path) -> None:
    described = json.loads(tokenizer.to_str())
    last = max(described["model"]["vocab"], key=described["model"]["vocab"].__getitem__)
    described["model"]["vocab"][last] += 70_000
    sparse = Tokenizer.from_str(json.dumps(described))
    sparse.encode_special_tokens = True
    text = sparse.decode([sparse.token_to_id(last)])
    shards = shard(tmp_path / "s.files", "files", [document(CODE + text)], Encoder(sparse))
    assert shards is not None and shards.meta["dtype"] == "<u4" and shards.meta["vocabulary"] > 70_000
    assert sparse.decode(shards.document(0).tolist()) == CODE + text


def test_a_tokenizer_without_marks_for_fill_in_the_middle_is_shown_what_to_do() -> None:
    with pytest.raises(NoFimTokens, match="set corpus.fim_rate to 0, or add them with `etude tokenizer extend --fim`"):
        fim_tokens(train_tokenizer([CODE], ["<|pad|>"], 400))


def test_a_finished_folder_is_not_made_again_and_an_unfinished_one_is(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def documents(dying: bool):
        yield from (document(f"text {i}\n") for i in range(600))
        if dying:
            raise KeyboardInterrupt

    encoder, folder = Encoder(tokenizer), tmp_path / "s.files"
    with pytest.raises(KeyboardInterrupt):
        shard(folder, "files", documents(dying=True), encoder)
    made = shard(folder, "files", documents(dying=False), encoder)
    assert made is not None and len(made) == 600 and made.meta["bytes"] == sum(len(f"text {i}\n") for i in range(600))

    def unread():
        raise AssertionError("it was finished")
        yield

    again = shard(folder, "files", unread(), encoder)
    assert again is not None and again.meta == made.meta


def test_no_document_leaves_no_folder(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert shard(tmp_path / "s.changes", "changes", [], Encoder(tokenizer)) is None
    assert not (tmp_path / "s.changes").exists()


def test_samples_are_drawn_from_the_whole_folder_cut_and_say_where_they_are_from(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for name in ("a.files", "b.files"):
        shard(tmp_path / name, "files", [document(f"{i} " + "x" * 4_000) for i in range(200)], Encoder(tokenizer))
    found = samples([tmp_path / "a.files", tmp_path / "b.files"], 9)
    assert len(found) == 9 and found[0]["licence"] == "MIT" and found[0]["version"] == ""
    assert all(len(one["text"]) == SAMPLE_CHARS + 1 for one in found)
    drawn = {int(one["text"].split()[0]) for one in samples([tmp_path / "a.files"], SAMPLED)}
    assert len(drawn) == SAMPLED and max(drawn) > 50, "not only the first ones"


def test_buckets_count_every_document_by_the_power_of_two_that_holds_it(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [[1] * n for n in (1, 2, 3, 4, 5, 8, 9)])
    assert length_buckets([shards]) == [[1, 1], [2, 1], [4, 2], [8, 2], [16, 1]]


@given(st.lists(TEXT, unique=True, max_size=30), st.integers(0, 200), st.randoms())
def test_a_sample_fits_its_bytes_and_does_not_hang_on_the_order_of_arrival(
    texts: list[str], most: int, rng: random.Random
) -> None:
    first = sample(texts, most, seed=3)
    rng.shuffle(texts)
    assert sample(texts, most, seed=3) == first
    assert sum(len(text.encode()) for text in first) <= most
    assert set(first) <= set(texts)
    if sum(len(text.encode()) for text in texts) <= most:
        assert sorted(first) == sorted(texts)
