"""A library built out of folders: what is kept, what is refused and why, and that a kill changes nothing in the end."""

from __future__ import annotations

import json
import multiprocessing
import random
from pathlib import Path

import pytest

from etude.core.events.log import EventLog
from etude.core.sources.npm import NpmSource
from etude.core.sources.project import SourceOffline
from etude.learn.corpus.build import BuildError, LibraryBuilder
from etude.learn.corpus.choose import NoSuchText, choose
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.library import Library, LibraryDamaged
from etude.learn.corpus.manifest import entries, refused_files
from etude.learn.corpus.overview import overview
from etude.learn.corpus.settings import CorpusSettings, SourceSettings
from etude.learn.corpus.split import held_out
from etude.learn.corpus.workers import WorkerLost

LICENCE = (Path(__file__).parents[4] / "LICENSE").read_text()


def module(name: str, lines: int = 40) -> str:
    """Python of its own for each name."""
    rng = random.Random(name)
    body = "".join(f"    {name}_{i} = value * {rng.randrange(10**6)} + {rng.randrange(10**6)}\n" for i in range(lines))
    return f'"""Module {name}."""\n\n\ndef {name}(value):\n{body}    return {name}_{lines - 1}\n'


def project(folder: Path, *names: str, licence: str = LICENCE) -> Path:
    """A folder of modules under a licence."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.py").write_text(module(name))
    if licence:
        (folder / "LICENSE").write_text(licence)
    return folder


def settings(*folders: Path, workers: int = 1, **table: object) -> CorpusSettings:
    sources = {folder.name: {"kind": "folder", "path": folder, **table} for folder in folders}
    return CorpusSettings.model_validate({"sources": sources, "library": {"workers": workers}})


def build(wanted: CorpusSettings, out: Path) -> Clusters:
    return LibraryBuilder(wanted, out, out / "downloads", EventLog.null()).run()


def texts(out: Path) -> dict[str, str]:
    return {
        record.id: record.text for line in entries(out / "manifest.jsonl") for record in Library(out).read(line["id"])
    }


def test_every_file_is_a_text_with_its_provenance_or_refused_with_a_reason(tmp_path: Path) -> None:
    mine = project(tmp_path / "mine", "alpha", "beta")
    (mine / "logo.png").write_bytes(b"\x89PNG\0")
    (mine / "data.bin").write_bytes(b"\0" * 100)
    (mine / "contact.py").write_text(module("contact") + "# mail jane.doe@corp.io about this\n")
    build(settings(mine), tmp_path / "out")
    (line,) = entries(tmp_path / "out" / "manifest.jsonl")
    found = texts(tmp_path / "out")
    assert line["id"] == "mine/mine" and line["records"] == len(found) == 3 + 1
    assert {path for path, _ in refused_files(tmp_path / "out" / "manifest.jsonl", line)} == {"logo.png", "data.bin"}
    assert "jane.doe" not in found["mine/mine@:contact.py#file"] and line["redactions"]["email"] == 1
    record, number = choose(tmp_path / "out", language="python")
    assert record.licence.expression == "Apache-2.0" and choose(tmp_path / "out", number)[0] == record


def test_strangers_code_needs_a_licence_and_one_s_own_does_not(tmp_path: Path) -> None:
    bare = project(tmp_path / "bare", "alpha", licence="")
    build(settings(bare), tmp_path / "own")
    assert len(texts(tmp_path / "own")) == 1
    build(settings(bare, licences=["permissive"]), tmp_path / "strict")
    assert not texts(tmp_path / "strict")
    assert overview(tmp_path / "strict")["refused"] == {"licence: unknown": 1}


def test_a_copy_stays_once_over_all_sources(tmp_path: Path) -> None:
    one, two = project(tmp_path / "one", "alpha", "beta"), project(tmp_path / "two", "gamma")
    (two / "copied.py").write_text(module("alpha"))
    (two / "nearly.py").write_text(module("beta").replace("Module beta", "The module beta, changed"))
    clusters = build(settings(one, two), tmp_path / "out")
    kept = [i for i in range(len(clusters)) if clusters.keep(i)]
    assert len(clusters) == 7 and len(kept) == 4  # alpha, beta, gamma, the licence
    assert overview(tmp_path / "out")["copies"] == {"texts": 7, "kept": 4, "clusters": 3, "sizes": {"2": 3}}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_build_killed_at_any_project_goes_on_to_the_same_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    wanted = settings(*(project(tmp_path / name, name, name + "x") for name in ("a", "b", "c")))
    straight = build(wanted, tmp_path / "straight")
    append, count = LibraryBuilder._take, 0

    def dying(self: LibraryBuilder, *arguments: object) -> None:
        nonlocal count
        if count == after:
            index = arguments[3]
            index.append("0" * 64, 0, None)  # type: ignore[attr-defined]  # a signature without its line, as a kill between the two leaves it
            index.flush()  # type: ignore[attr-defined]
            raise Killed
        count += 1
        append(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LibraryBuilder, "_take", dying)
    if after < 3:
        with pytest.raises(Killed):
            build(wanted, tmp_path / "killed")
    monkeypatch.undo()
    again = build(wanted, tmp_path / "killed")
    assert again.kept.tolist() == straight.kept.tolist()
    assert texts(tmp_path / "killed") == texts(tmp_path / "straight")


def test_workers_change_the_time_and_nothing_else(tmp_path: Path) -> None:
    folders = [project(tmp_path / name, name, name + "x") for name in ("a", "b", "c")]
    one, two = build(settings(*folders), tmp_path / "one"), build(settings(*folders, workers=2), tmp_path / "two")
    assert one.kept.tolist() == two.kept.tolist()
    assert [*entries(tmp_path / "one" / "manifest.jsonl")] == [*entries(tmp_path / "two" / "manifest.jsonl")]


@pytest.mark.nightly
def test_a_worker_that_dies_ends_the_build_with_a_remedy_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [project(tmp_path / f"p{n:02}", f"m{n}") for n in range(30)]
    wanted, two = settings(*folders), settings(*folders, workers=2)
    taken = LibraryBuilder._take

    def deadly(self: LibraryBuilder, *args: object) -> None:
        taken(self, *args)  # type: ignore[arg-type]
        for child in multiprocessing.active_children():
            child.kill()

    monkeypatch.setattr(LibraryBuilder, "_take", deadly)
    with pytest.raises(WorkerLost, match="Run the same command again and it goes on"):
        build(two, tmp_path / "died")
    monkeypatch.undo()
    assert 0 < len(list(entries(tmp_path / "died" / "manifest.jsonl"))) < 30
    build(wanted, tmp_path / "died")
    build(wanted, tmp_path / "straight")
    assert texts(tmp_path / "died") == texts(tmp_path / "straight")


def test_a_source_out_of_reach_is_skipped_with_a_notice_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = project(tmp_path / "mine", "alpha")
    wanted = settings(mine)
    wanted.sources["far"] = SourceSettings(kind="npm", packages=["express"])
    asked: list[NpmSource] = []

    def unreachable(self: NpmSource) -> str:
        asked.append(self)
        raise SourceOffline("no route to the registry")

    monkeypatch.setattr(NpmSource, "configured_index", unreachable)
    for _ in range(2):
        LibraryBuilder(wanted, tmp_path / "out", tmp_path / "cache", EventLog(tmp_path / "events.jsonl")).run()
    assert len(asked) == 2 and len(texts(tmp_path / "out")) == 2
    notes = [json.loads(line).get("text", "") for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert notes.count("source far is skipped: no route to the registry") == 2


def test_another_recipe_is_not_built_into_the_same_folder(tmp_path: Path) -> None:
    mine = project(tmp_path / "mine", "alpha")
    build(settings(mine), tmp_path / "out")
    with pytest.raises(BuildError, match=r"other settings \(sources\): put them back, or name another folder"):
        build(settings(mine, licences=["permissive"]), tmp_path / "out")
    with pytest.raises(BuildError, match=r"names no source: add a table such as \[corpus.sources.mine\]"):
        build(CorpusSettings.model_validate({}), tmp_path / "none")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="source 'gone' names .*gone, which is not a folder"):
        build(settings(tmp_path / "gone"), tmp_path / "out")


def test_an_empty_folder_makes_an_empty_library_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert len(build(settings(tmp_path / "empty"), tmp_path / "out")) == 0
    with pytest.raises(NoSuchText, match="no text of language ''; there are: none"):
        choose(tmp_path / "out")
    with pytest.raises(NoSuchText, match="there is no text 0: the library holds 0"):
        choose(tmp_path / "out", 0)
    with pytest.raises(FileNotFoundError, match="holds no library"):
        overview(tmp_path / "elsewhere")


def test_a_damaged_file_of_the_library_is_named(tmp_path: Path) -> None:
    mine = project(tmp_path / "mine", "alpha")
    build(settings(mine), tmp_path / "out")
    path = Library(tmp_path / "out").path("mine/mine")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LibraryDamaged, match="mine.jsonl.zst can't be read"):
        list(Library(tmp_path / "out").read("mine/mine"))


def test_names_of_projects_do_not_climb_out_of_the_library(tmp_path: Path) -> None:
    library = Library(tmp_path)
    long = "npm/" + "x" * 400
    for name in ("npm/@scope/name@1.0", "npm/../../etc/passwd", "../..", "npm/..", long, long + "y"):
        path = library.path(name)
        assert path.resolve().is_relative_to(tmp_path / "records") and len(path.name) <= 255, name
    assert library.path(long) != library.path(long + "y")


def test_the_hold_out_is_of_whole_projects_and_close_to_its_share() -> None:
    names = [f"project-{i}" for i in range(2000)]
    assert 70 < sum(held_out(name, 0.05) for name in names) < 130
    assert [held_out(name, 0.0) for name in names] == [False] * 2000
