"""`max_bytes`: a source never holds more, what is kept does not hang on names, and what is left out is reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.core.sources.project import Ref
from etude.core.sources.stdlib import StdlibSource
from etude.learn.corpus.build import LibraryBuilder
from etude.learn.corpus.manifest import entries
from etude.learn.corpus.overview import overview
from etude.learn.corpus.quota import OVER, Quota
from etude.learn.corpus.settings import CorpusSettings, SourceSettings

MODULES = ("aone", "btwo", "cthree", "dfour", "efive", "fsix")


def bounded(most: int | None) -> dict[str, SourceSettings]:
    return {"s": SourceSettings.model_validate({"kind": "stdlib", "max_bytes": most})}


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200), st.integers(0, 30))
def test_a_source_never_holds_more_than_its_bound_and_a_resumed_build_takes_the_same(
    sizes: list[int], most: int, killed: int
) -> None:
    quota = Quota(bounded(most), ())
    taken = [quota.admits("s", size) for size in sizes]
    assert sum(size for size, took in zip(sizes, taken, strict=True) if took) <= most
    assert taken == sorted(taken, reverse=True), "the first that does not fit ends the source"
    lines = [
        {"source": "s", "reason": "" if took else OVER, "kept": {"python": (1, size if took else 0)}}
        for size, took in zip(sizes, taken, strict=True)
    ]
    again = Quota(bounded(most), lines[:killed])
    assert [again.admits("s", size) for size in sizes[killed:]] == taken[killed:]


@given(st.lists(st.sampled_from("abcdefghij"), unique=True), st.randoms())
def test_the_order_of_a_bounded_source_hangs_on_the_names_alone_and_keeps_versions_together(
    names: list[str], rng: random.Random
) -> None:
    refs = [Ref("s", "sdist", name, version) for name in names for version in ("2", "1")]
    shuffled = list(names)
    rng.shuffle(shuffled)
    quota = Quota(bounded(1), ())
    found = quota.order("s", refs)
    assert found == quota.order("s", [Ref("s", "sdist", name, v) for name in shuffled for v in ("2", "1")])
    assert all(found[i].name == found[i + 1].name and found[i].version == "2" for i in range(0, len(found), 2))
    assert Quota(bounded(None), ()).order("s", refs) == refs


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of six modules, of about 2,000 bytes each."""
    root = tmp_path / "lib"
    root.mkdir()
    for name in MODULES:
        lines = "".join(f"    {name}_{i} = value + {i * 7919}\n" for i in range(70))
        (root / f"{name}.py").write_text(f"def {name}(value):\n{lines}    return value\n")
    monkeypatch.setattr("sys.stdlib_module_names", frozenset(MODULES))
    made = StdlibSource.__init__

    def elsewhere(self: StdlibSource, *arguments: object) -> None:
        made(self, *arguments)  # type: ignore[arg-type]
        self.root = root

    monkeypatch.setattr(StdlibSource, "__init__", elsewhere)
    return root


def build(out: Path, most: int | None) -> list[tuple[str, str]]:
    table = {"kind": "stdlib", "max_bytes": most}
    wanted = CorpusSettings.model_validate({"sources": {"std": table}, "library": {"workers": 1}})
    LibraryBuilder(wanted, out, out / "downloads", EventLog.null()).run()
    return [(line["project"], line["reason"]) for line in entries(out / "manifest.jsonl")]


def test_a_bounded_library_tells_what_it_left_out_and_holds_no_trace_of_it(library: Path, tmp_path: Path) -> None:
    size = (library / "aone.py").stat().st_size
    found = build(tmp_path / "out", int(size * 3.5))
    kept = [name for name, reason in found if not reason]
    assert len(found) == len(MODULES) and len(kept) == 3
    assert {reason for name, reason in found if name not in kept} == {OVER}
    about = overview(tmp_path / "out")
    assert about["over_max_bytes"] == {"std": 3} and about["sources"]["std"]["projects"] == 3
    assert about["sources"]["std"]["kept_bytes"] <= size * 3.5 and not about["left_out"]
    assert len(list((tmp_path / "out" / "records").rglob("*.zst"))) == 3


def test_a_project_larger_than_the_bound_is_taken_in_part(library: Path, tmp_path: Path) -> None:
    for name in MODULES:
        (library / f"{name}.py").rename(library / f"{name}_.py")
    (library / "aone").mkdir()
    for name in MODULES:
        (library / f"{name}_.py").rename(library / "aone" / f"{name}.py")
    size = (library / "aone" / "aone.py").stat().st_size
    assert build(tmp_path / "out", int(size * 2.5)) == [("aone", "")]
    about = overview(tmp_path / "out")
    assert about["sources"]["std"]["texts"] == 2 and about["refused"][OVER] == 4


def test_without_a_bound_all_is_taken_in_the_order_of_names(library: Path, tmp_path: Path) -> None:
    assert build(tmp_path / "out", None) == [(name, "") for name in MODULES]
