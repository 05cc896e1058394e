"""A store that was torn, cut, lost or written by another version is rebuilt with a notice, and never breaks a reader."""

from __future__ import annotations

import os
import random

import pytest

from etude.agent.code_index.errors import IndexRefused, NotBuilt
from etude.agent.code_index.store import read_checked, write_checked

FILES = {
    "a.py": "def parse_config(path):\n    return path\n",
    "pkg/b.py": "class Store:\n    def size(self):\n        return 1\n",
    "c.md": "# Retry policy\nHow often a request is sent again.\n",
}
QUESTIONS = ["parse config", "Store.size", "retry policy of a request"]


def index_state(index) -> list:
    return [index.search(question) for question in QUESTIONS]


def damaged(data: bytes, how: str, seed: int) -> bytes:
    at = random.Random(seed).randrange(len(data))
    return {
        "flip": data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :],
        "cut": data[:at],
        "empty": b"",
        "more": data + b"x",
    }[how]


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "more", "gone"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["manifest", "seg", "seen"])
def test_a_torn_store_is_rebuilt_with_a_notice(lab, kind: str, how: str, seed: int) -> None:
    lab.write({"c.md": FILES["c.md"]})
    lab.built()
    lab.write(FILES)
    before = index_state(lab.built())  # two segments
    files = sorted(file for file in (lab.home / "store").iterdir() if kind in file.name)
    file = files[seed % len(files)]
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(damaged(file.read_bytes(), how, seed))
    index = lab.built()
    assert index_state(index) == before
    assert index_state(lab.index()) == before
    silent = kind == "seen" or (kind == "manifest" and how == "gone")  # both only mean: compare everything again
    assert bool(lab.notices) != silent, lab.notices
    assert all(str(lab.home) in notice and "again" in notice for notice in lab.notices)


def test_a_reader_of_a_torn_store_is_shown_what_to_do(lab) -> None:
    lab.write(FILES)
    lab.built()
    (lab.home / "store" / "manifest.json").write_text("{")
    with pytest.raises(NotBuilt, match="etude index build"):
        lab.index().search("anything")
    assert lab.notices


def test_a_store_of_another_format_is_built_again(lab) -> None:
    lab.write(FILES)
    before = index_state(lab.built())
    manifest = lab.home / "store" / "manifest.json"
    write_checked(manifest, read_checked(manifest) | {"format": 0})
    assert index_state(lab.built()) == before
    assert "format is 0" in lab.notices[0]


def test_a_store_of_another_folder_is_refused_by_name(lab) -> None:
    lab.write(FILES)
    lab.built()
    other = lab.home / "other"
    other.mkdir()
    lab.root = other
    with pytest.raises(IndexRefused, match="holds the index of .*root, not of .*other"):
        lab.built()


def test_only_the_owner_may_look_into_a_store(lab) -> None:
    lab.write(FILES)
    lab.built()
    assert os.stat(lab.home / "store").st_mode & 0o077 == 0


def test_an_open_index_sees_another_ones_update_at_its_next_search(lab) -> None:
    lab.write(FILES)
    writer, reader = lab.built(), lab.index()
    assert not reader.search("frobnicate")
    lab.write({"d.py": "def frobnicate():\n    return 1\n"})
    writer.update(workers=1)
    assert [hit.path for hit in reader.search("frobnicate")] == ["d.py"]


def test_hits_show_what_was_indexed_also_where_the_folder_changed(lab) -> None:
    lab.write(FILES)
    index = lab.built()
    lab.write({"a.py": "gone\n"})
    assert "def parse_config" in index.search("parse_config")[0].snippet
