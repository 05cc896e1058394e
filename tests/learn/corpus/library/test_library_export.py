"""Training documents out of a library: the three shapes, the split, and that nothing of a copy or of the other side gets in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import zstandard
from test_library_build import build, module, project, settings

from etude.core.sources.archive import refused_ref
from etude.core.sources.sdist import SdistSource
from etude.learn.corpus.export import FORMS, TOKENS, ExportShape, LibraryUnfinished, export, write
from etude.learn.corpus.settings import CorpusSettings
from etude.learn.corpus.shape.fim import Special, unfim


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_files_come_once_and_cut_ones_can_be_put_together_again(tmp_path: Path) -> None:
    one, two = project(tmp_path / "one", "alpha", "beta"), project(tmp_path / "two", "gamma")
    (two / "copied.py").write_text(module("alpha"))
    build(settings(one, two), tmp_path / "out")
    plain = {d["path"]: d["text"] for d in export(tmp_path / "out", "files", "train", ExportShape())}
    assert set(plain) == {"LICENSE", "alpha.py", "beta.py", "gamma.py"}
    cut = list(export(tmp_path / "out", "files", "train", ExportShape(fim_rate=1.0)))
    assert all("pieces" in d for d in cut)
    for document in cut:
        pieces = [p if isinstance(p, str) else Special(p["special"]) for p in document["pieces"]]
        assert [p for p in pieces if isinstance(p, Special)][0] == TOKENS.prefix
        assert unfim(pieces) == plain[document["path"]]


def test_a_project_is_one_text_with_what_is_imported_first(tmp_path: Path) -> None:
    mine = project(tmp_path / "mine", "zeta")
    (mine / "alpha.py").write_text("from zeta import zeta\n\n" + module("alpha"))
    build(settings(mine), tmp_path / "out")
    (document,) = export(tmp_path / "out", "projects", "train", ExportShape())
    assert (
        document["paths"].index("zeta.py") < document["paths"].index("alpha.py") and document["bucket_tokens"] == 8192
    )
    assert module("zeta") in document["text"]


def test_changes_between_releases_come_with_the_changelog(tmp_path: Path) -> None:
    repository = project(tmp_path / "repo", "alpha", "beta")
    git(repository, "init", "-q")
    (repository / "CHANGELOG.md").write_text(
        "# Changes\n\n## 1.0.0\n\n- The first release of all, with two modules in it.\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    git(repository, "tag", "v1.0.0")
    (repository / "alpha.py").write_text(module("alpha").replace("def alpha(value):", "def alpha(value, scale):"))
    text = (repository / "CHANGELOG.md").read_text()
    (repository / "CHANGELOG.md").write_text(text.replace("## 1.0.0", "## 1.1.0\n\n- alpha takes a scale\n\n## 1.0.0"))
    git(repository, "commit", "-qam", "two")
    git(repository, "tag", "v1.1.0")
    wanted = CorpusSettings.model_validate({"sources": {"ours": {"kind": "git", "path": repository, "releases": 3}}})
    build(wanted, tmp_path / "out")
    found = [d["text"] for d in export(tmp_path / "out", "changes", "train", ExportShape())]
    (text,) = [t for t in found if "alpha takes a scale" in t]
    assert "-def alpha(value):\n+def alpha(value, scale):" in text and "beta" not in text
    blocks = [d["text"] for d in export(tmp_path / "out", "changes", "train", ExportShape(edits="blocks"))]
    assert len(blocks) == len(found) and blocks != found and any("def alpha(value, scale):" in t for t in blocks)


def test_held_out_projects_are_on_one_side_alone(tmp_path: Path) -> None:
    folders = [project(tmp_path / f"p{i}", f"name{i}") for i in range(12)]
    wanted = settings(*folders)
    wanted.library.heldout_share = 0.5
    build(wanted, tmp_path / "out")
    sides = {
        s: {d["project"] for d in export(tmp_path / "out", "files", s, ExportShape())} for s in ("train", "heldout")
    }
    assert sides["train"] and sides["heldout"] and not sides["train"] & sides["heldout"]
    assert len(sides["train"] | sides["heldout"]) == 12


def test_what_is_written_is_whole(tmp_path: Path) -> None:
    build(settings(project(tmp_path / "mine", "alpha", "beta")), tmp_path / "out")
    documents = list(export(tmp_path / "out", "files", "train", ExportShape()))
    count, size = write(iter(documents), tmp_path / "texts.jsonl.zst")
    data = zstandard.ZstdDecompressor().stream_reader((tmp_path / "texts.jsonl.zst").read_bytes()).read()
    assert [json.loads(line) for line in data.splitlines()] == documents and (count, size) == (
        len(documents),
        len(data),
    )
    write(iter(documents), tmp_path / "texts.jsonl")
    assert (tmp_path / "texts.jsonl").read_bytes() == data and not list(tmp_path.glob("*.part"))


def test_a_project_that_was_left_out_or_empty_leaves_no_gap(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    one, two = project(tmp_path / "one", "alpha"), project(tmp_path / "two", "gamma")
    wanted = settings(one, tmp_path / "empty", two)
    gone = {"kind": "sdist", "packages": ["gone"]}
    wanted = CorpusSettings.model_validate({"sources": {"a": gone, **wanted.model_dump()["sources"]}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SdistSource, "refs", lambda self: iter([refused_ref("a", "sdist", "gone", "404")]))
        build(wanted, tmp_path / "out")
    for form in FORMS:
        assert (
            len(list(export(tmp_path / "out", form, "train", ExportShape())))
            == {"files": 3, "projects": 2, "changes": 0}[form]
        )


def test_a_library_without_its_end_is_not_exported(tmp_path: Path) -> None:
    build(settings(project(tmp_path / "mine", "alpha")), tmp_path / "out")
    (tmp_path / "out" / "copies.npy").unlink()
    with pytest.raises(LibraryUnfinished, match="run the same `etude corpus build` again"):
        list(export(tmp_path / "out", "files", "train", ExportShape()))
