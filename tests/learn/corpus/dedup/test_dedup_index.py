"""The index on disk: copies found with one kept by rank, the two bars on real files, and a kill that leaves no trace."""

from __future__ import annotations

import hashlib
import importlib.util
import random
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from etude.learn.corpus.dedup import index as leaders
from etude.learn.corpus.dedup import index as partitions
from etude.learn.corpus.dedup import records
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.dedup.index import DedupIndex
from etude.learn.corpus.dedup.minhash import SHORTEST_SHINGLES, jaccard, shingles_of, sign

SPEC = importlib.util.spec_from_file_location("edits", Path(__file__).with_name("edits.py"))
assert SPEC is not None and SPEC.loader is not None
edits = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(edits)

PLANTED = 400
LICENCE_HEADER = "# Copyright 2024\n# Licensed under the MIT License\n" * 30


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def add_all(folder: Path, texts: list[str], ranks: list[int] | None = None) -> DedupIndex:
    found = DedupIndex(folder)
    for number in range(len(found), len(texts)):
        assert found.append(digest(texts[number]), ranks[number] if ranks else 0, sign(texts[number])) == number
    return found


@pytest.fixture(scope="module")
def real() -> list[str]:
    """A fixed sample of the standard library, tiny files among them."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    paths = [path for path in paths if "site-packages" not in path.parts and 0 < path.stat().st_size < 60_000]
    texts = [path.read_text(errors="replace") for path in random.Random(0).sample(paths, 2 * PLANTED)]
    return sorted(set(texts))


@pytest.fixture(scope="module")
def with_copies(real: list[str]) -> tuple[list[str], dict[int, int]]:
    """Texts, and for each planted copy's number the original's."""
    rng = random.Random(1)
    long = [n for n, text in enumerate(real) if len(shingles_of(text)) >= SHORTEST_SHINGLES]
    texts, planted = list(real), {}
    for n in rng.sample(long, PLANTED):
        planted[len(texts)] = n
        texts.append(edits.edited_copy(real[n], rng))
    return texts, planted


def test_95_percent_of_edited_copies_are_found_and_one_in_a_hundred_dropped_texts_is_really_another(
    with_copies: tuple[list[str], dict[int, int]], tmp_path: Path
) -> None:
    texts, planted = with_copies
    clusters = add_all(tmp_path, texts).finish()
    found = sum(clusters.cluster(copy) == clusters.cluster(original) for copy, original in planted.items())
    assert found >= 0.95 * len(planted)
    dropped = [n for n in range(len(texts)) if not clusters.keep(n)]
    another = [n for n in dropped if jaccard(shingles_of(texts[n]), shingles_of(texts[clusters.cluster(n)])) < 0.5]
    assert len(dropped) > 0.95 * PLANTED
    assert len(another) <= 0.01 * len(dropped)


def test_small_blocks_and_many_partitions_find_the_same(
    with_copies: tuple[list[str], dict[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text for text in with_copies[0] if len(text) < 8000]
    documents = add_all(tmp_path, texts)
    whole = documents.finish()
    monkeypatch.setattr(records, "BLOCK_DOCUMENTS", 7)
    monkeypatch.setattr(records, "GAP", 2)
    monkeypatch.setattr(partitions, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(partitions, "ROWS_HELD", 1000)
    monkeypatch.setattr(leaders, "PAIRS_AT_ONCE", 5)
    parted = documents.finish()
    assert len(set(whole.kept.tolist())) < len(texts)
    assert parted.kept.tolist() == whole.kept.tolist()
    assert not any((tmp_path / "sorting").iterdir())


def test_exact_copies_are_found_whatever_their_length(tmp_path: Path) -> None:
    texts = ["x = 1\n", "y = 2\n", "x = 1\n", "", "x = 1\n"]
    clusters = add_all(tmp_path, texts).finish()
    assert [clusters.keep(n) for n in range(5)] == [True, True, False, True, False]
    assert clusters.cluster(4) == clusters.cluster(2) == 0
    assert clusters.size(4) == 3
    assert clusters.sizes() == {1: 2, 3: 1}


def test_tiny_files_that_share_only_their_boilerplate_stay(tmp_path: Path) -> None:
    texts = [
        f"{LICENCE_HEADER}from .{name} import {name.title()}\n\n__all__ = ['{name.title()}']\n"
        for name in ("one", "two", "six")
    ]
    clusters = add_all(tmp_path, texts).finish()
    assert all(clusters.keep(n) for n in range(3))


def test_the_copy_with_the_best_rank_is_kept_then_the_first(real: list[str], tmp_path: Path) -> None:
    text = max(real, key=len)
    copies = [text, text + "\nx = 1\n", text, "#!/usr/bin/python\n" + text]
    clusters = add_all(tmp_path, copies, [5, 3, 3, 4]).finish()
    assert clusters.kept.tolist() == [1, 1, 1, 1]
    assert add_all(tmp_path / "equal", copies).finish().kept.tolist() == [0, 0, 0, 0]


def test_a_killed_run_cut_back_and_gone_on_finds_the_same(real: list[str], tmp_path: Path) -> None:
    texts = real[:60] + real[:20]
    whole = add_all(tmp_path / "whole", texts).finish()
    killed = add_all(tmp_path / "killed", texts[:50])
    killed.close()
    file = next((tmp_path / "killed").glob("documents-*.bin"))
    with file.open("ab") as torn:
        torn.write(b"half a record")
    again = DedupIndex(tmp_path / "killed")
    assert len(again) == 50
    again.cut(40)
    again.close()
    (tmp_path / "killed" / "sorting").mkdir()
    (tmp_path / "killed" / "sorting" / "part-0000.bin").write_bytes(b"left by a killed finish")
    gone_on = add_all(tmp_path / "killed", texts)
    assert gone_on.finish().kept.tolist() == whole.kept.tolist()
    assert gone_on.append(digest("more"), 0, sign("more")) == len(texts)  # finishing ends nothing


def test_clusters_come_back_from_disk(tmp_path: Path) -> None:
    Clusters(np.array([0, 0, 2], dtype=np.uint32)).save(tmp_path / "clusters.npy")
    assert Clusters.load(tmp_path / "clusters.npy").kept.tolist() == [0, 0, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["clusters.npy"]


def test_an_empty_library_has_no_clusters(tmp_path: Path) -> None:
    assert len(DedupIndex(tmp_path).finish()) == 0


def test_nonsense_is_refused_with_a_reason(tmp_path: Path) -> None:
    with DedupIndex(tmp_path) as documents:
        with pytest.raises(ValueError, match="threshold 0"):
            documents.finish(0)
        with pytest.raises(ValueError, match="SHA-256 in hexadecimal"):
            documents.append("abc", 0, sign("text"))
        with pytest.raises(ValueError, match="holds 0 documents, fewer than the 3"):
            documents.cut(3)
