"""Files are cleaned with counted reasons, the order follows the seed, and the hold-out follows the text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.corpus.collection import collect
from etude.corpus.document import Document
from etude.corpus.settings import CorpusSettings

GOOD = "def add(a, b):\n    return a + b  # {}\n\n\nprint(add(1, 2), 'and some more text to be long enough')\n"


def folder_settings(folder, **changes):
    return CorpusSettings(stdlib=False, folders=[folder], heldout_share=0.0, **changes)


def test_refused_files_are_counted_by_reason(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "copy.py").write_text(GOOD)
    (tmp_path / "windows.txt").write_bytes(GOOD.replace("\n", "\r\n").encode() + b"# end\r\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0" * 20)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 30)
    (tmp_path / "broken.py").write_text("def f(:\n" * 20)
    (tmp_path / "broken.txt").write_text("def f(:\n" * 20)
    (tmp_path / "small.py").write_text("x=1")
    (tmp_path / "large.py").write_text("x = 1\n" * 20_000)
    (tmp_path / "minified.js").write_text("a=1;" * 500)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(GOOD)
    found = collect(folder_settings(tmp_path))
    assert sorted(d.name for d in found.train if d.text != GOOD) == ["broken.txt", "windows.txt"]
    assert len(found.train) == 3
    assert "\r" not in "".join(d.text for d in found.train)
    reasons = {"binary": 1, "not UTF-8": 1, "not valid Python": 1, "too small": 1, "too large": 1, "long lines": 1}
    assert found.refused == {**reasons, "duplicate": 1}
    assert "1 binary" in found.summary()


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        collect(folder_settings(tmp_path / "nowhere"))


def test_the_byte_cap_takes_a_seeded_sample(tmp_path):
    for i in range(40):
        (tmp_path / f"f{i:02d}.py").write_text(GOOD.format(i))
    size = len(GOOD.format(10))
    names = [
        [d.name for d in collect(folder_settings(tmp_path, seed=seed, max_code_bytes=size * 9)).train]
        for seed in (0, 0, 1)
    ]
    assert names[0] == names[1] != names[2]
    assert 9 <= len(names[0]) <= 10


def test_stdlib_gives_valid_python_without_tests():
    found = collect(CorpusSettings(max_code_bytes=200_000))
    assert 200_000 <= found.accepted_bytes["stdlib"] < 300_000
    assert all(d.name.endswith(".py") and "test/" not in d.name and "idlelib" not in d.name for d in found.train)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True), st.integers(0, 5), st.randoms())
def test_split_and_order_do_not_depend_on_the_order_of_arrival(texts, seed, rng: random.Random):
    documents = [Document(text, "exercise", text) for text in texts]
    settings = CorpusSettings(stdlib=False, heldout_share=0.3, seed=seed)
    first = collect(settings, documents)
    rng.shuffle(documents)
    second = collect(settings, documents)
    assert first.train == second.train and first.heldout == second.heldout
    assert len(first.train) + len(first.heldout) == len(texts)


def test_about_the_wanted_share_is_held_out():
    held = sum(Document(str(i), "exercise", str(i)).held_out(0.1) for i in range(5000))
    assert 400 < held < 600
