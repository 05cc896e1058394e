"""A filter over a listing keeps what a walk of the same tree keeps; a base answers as the folder that it was taken from."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.code_index.base import Base
from etude.agent.code_index.bases import Bases
from etude.agent.code_index.errors import IndexRefused, NotBuilt
from etude.agent.code_index.listing_filter import ListingFilter
from etude.agent.code_index.walk import walk

NAMES = st.sampled_from(["a", "b.py", "c.lock", "build", "node_modules", "x y", "bell\a", ".git"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
RULES = st.lists(
    st.sampled_from(["a", "/a", "build/", "*.py", "!b.py", "**/b.py", "a/*", "# no", "x y", "\\!c"]), max_size=3
).map("\n".join)
TREES = st.dictionaries(PATHS, st.sampled_from(["", "x = 1\n"]), max_size=8)
IGNORES = st.dictionaries(st.sampled_from(["", "a/", "build/", "a/a/"]), RULES, max_size=3)


def write(root: Path, files: dict[str, str]) -> dict[str, str]:
    """Those that could be written: a path may go through a file."""
    made: dict[str, str] = {}
    for path, text in files.items():
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        except OSError:
            continue
        made[path] = text
    return made


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=TREES, ignores=IGNORES, exclude=st.none() | RULES)
def test_a_listing_filter_keeps_what_a_walk_keeps(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], ignores: dict[str, str], exclude: str | None
) -> None:
    root = tmp_path_factory.mktemp("tree")
    texts = {f"{folder}.gitignore": rules for folder, rules in ignores.items()}
    made = write(root, {".git/info/exclude": exclude or "", **texts, **files})
    listing = ListingFilter({p: text for p, text in made.items() if p.endswith((".gitignore", "info/exclude"))})
    listed = {p: os.path.getsize(root / p) for p in made}
    assert {p for p, size in listed.items() if listing.keeps(p, size)} == set(walk(root).files)


def test_a_base_is_built_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases, built = Bases(tmp_path), []
    own = bases._built
    monkeypatch.setattr(bases, "_built", lambda base: built.append(base.digest) or own(base))
    files = {"a.py": "def total():\n    return 1\n", "pkg/b.txt": b"\xff bytes"}
    threads = [threading.Thread(target=bases.build, args=(files,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    digest = Base({"a.py": files["a.py"].encode(), "pkg/b.txt": b"\xff bytes"}).digest
    assert built == [digest]
    assert bases.index(digest).search("total")[0].path == "a.py"


def test_an_overlay_outlives_its_base_which_is_built_again_when_asked_for(tmp_path: Path) -> None:
    bases = Bases(tmp_path, kept=1)
    first = {"a.py": "def total():\n    return 1\n"}
    overlay = bases.build(first).overlay()
    bases.build({"b.py": "y = 2\n"})
    with pytest.raises(NotBuilt, match="give its files"):
        bases.index(Base({"a.py": first["a.py"].encode()}).digest)
    assert overlay.search("total")[0].snippet.startswith("def total")
    assert bases.build(first).search("total")
    assert len(list(tmp_path.iterdir())) == 1


def test_ignore_files_above_the_folder_of_bases_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*\n")
    assert Bases(tmp_path / "bases").build({"a.py": "def total(): ...\n"}).search("total")


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a\0"])
def test_a_base_with_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(IndexRefused, match="names no file"):
        Bases(tmp_path / "bases").build({path: "x"})
    assert not (tmp_path / "bases").exists()


@given(st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=3))
def test_two_trees_never_share_a_digest(files: dict[str, bytes]) -> None:
    run_together = {"".join(files): b"".join(files.values())}
    assert (Base(files).digest == Base(run_together).digest) == (files == run_together)
    assert Base(dict(reversed(files.items()))).digest == Base(files).digest
