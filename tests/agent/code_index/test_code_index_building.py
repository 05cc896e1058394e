"""A segment's postings are the counts one would make by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.code_index.analysis import AnalysedChunk, AnalysedFile, analyse
from etude.agent.code_index.building import IndexSegmentBuilder
from etude.agent.code_index.chunking import Chunk
from etude.agent.code_index.segment import IndexSegment
from etude.agent.code_index.words import terms

words = st.lists(
    st.sampled_from(["parse_config", "ParseConfig", "config", "x", "value", "日本", "HTTPServer", "a" * 90]),
    max_size=12,
)
fields = st.tuples(words, words, words, words)


@given(st.lists(st.lists(fields, max_size=4), max_size=4))
def test_postings_and_lengths_are_those_counted_by_hand(files: list) -> None:
    builder = IndexSegmentBuilder()
    for number, chunks in enumerate(files):
        made = [AnalysedChunk(Chunk(n + 1, n + 1, "", ""), chunk) for n, chunk in enumerate(chunks)]
        builder.add(AnalysedFile(f"f{number}", "text", b"0" * 16, "", made))
    segment = IndexSegment("s", builder.columns())
    flat = [[terms(" ".join(field)) for field in chunk] for chunks in files for chunk in chunks]
    assert segment.length.tolist() == [body.total() + doc.total() for body, _, _, doc in flat]
    expected = {term for chunk in flat for field in chunk for term in field}
    assert [term.decode() for term in segment.columns["term"].tolist()] == sorted(expected, key=str.encode)
    for term in expected:
        postings = segment.postings(term)
        assert postings is not None
        by_hand = [
            (n, [field[term] for field in chunk]) for n, chunk in enumerate(flat) if any(field[term] for field in chunk)
        ]
        assert list(zip(postings.chunks.tolist(), postings.counts.tolist(), strict=True)) == by_hand
    assert segment.postings("nowhere") is None


def test_counts_stop_at_a_byte() -> None:
    builder = IndexSegmentBuilder()
    builder.add(analyse("a.txt", "many " * 300 + "few few\n", b"0" * 16))
    found = IndexSegment("s", builder.columns())
    assert {term: found.postings(term).counts.tolist()[0][0] for term in ("many", "few")} == {"many": 255, "few": 2}  # type: ignore[union-attr]
    assert found.length.tolist() == [302] and Counter(found.paths) == {"a.txt": 1}


@pytest.mark.parametrize("second", ["a", "b"])
def test_files_out_of_order_are_refused(second: str) -> None:
    builder = IndexSegmentBuilder()
    builder.add(analyse("b", "x\n", b"0" * 16))
    with pytest.raises(ValueError, match="order of their paths"):
        builder.add(analyse(second, "x\n", b"0" * 16))
