"""The command lines that pages show do what the pages say: each is run, in the page's order, in one folder that has what they name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_commands import ROOT, fenced

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.store import WeightStore

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
LIBRARY = '[corpus.library]\nheldout_share = 0.3\n[corpus.sources.stdlib]\nkind = "stdlib"\nmax_bytes = 1_200_000\n'
MODELS = ("runs/laptop/base/checkpoint", "runs/laptop/sft/checkpoint", "A", "B", "C")
SESSIONS = ROOT / "tests/tasks/generate/data/installs/semver"
PAGES = ("corpus", "index", "pretraining", "sandbox", "weights")
# What another page has made.
PREPARED = {"pretraining": [["corpus", "build", "recipes/corpus.toml", "--out", "runs/corpus"]]}
# By the start of the line: what other tests cover, or what a person has to end.
LEFT_OUT = {
    "etude index serve": "a server: tests/agent/code_index",
    "etude sandbox shell": "needs a terminal",
    "etude sandbox bench": "measures for minutes",
    "etude weights relay": "runs until it is stopped: tests/learn/weights",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a recipe, checkpoints, a weight store and a repository under the names that the pages use."""
    here, tokenizer = tmp_path / "work", byte_tokenizer()
    model = new_model(ModelSettings(hidden_size=32, layers=2, heads=2, experts=4), tokenizer.get_vocab_size())
    for name in MODELS:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str((here / name).parent / "tokenizer.json"))
        save_checkpoint(model, here / name, (here / name).parent)
    shutil.copytree(
        ROOT / "checkpoints/sft-nano", here / "CHECKPOINT"
    )  # its tokenizer has merges, to which more can be added
    shutil.copytree(SESSIONS, here / "runs/laptop/sessions")
    Publisher(WeightStore(here / "STORE")).publish(model.state_dict(), 0)
    (here / "recipes").mkdir()
    (here / "recipes/corpus.toml").write_text(LIBRARY)
    for repository in (tmp_path / "service", tmp_path / "tools", here / "DIR"):
        _repository(repository)
    return here


def _repository(folder: Path) -> None:
    (folder / "src").mkdir(parents=True)
    (folder / "src/retry.py").write_text('def retry_policy(times):\n    """How often."""\n    return times\n')
    for number in range(8):
        body = "".join(f"def part_{number}_{line}(value):\n    return value + {line}\n\n\n" for line in range(30))
        (folder / f"module_{number}.py").write_text(body)
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def etude(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etude", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, folder: Path) -> None:
    for words in PREPARED.get(page, ()):
        assert etude(folder, words).returncode == 0
    commands = [one for one in fenced(ROOT / "docs" / f"{page}.md") if not one.line.startswith(tuple(LEFT_OUT))]
    assert commands
    failed = []
    for one in commands:
        done = etude(folder, ["true" if word == "CMD" else word for word in one.words])
        if done.returncode:
            failed.append(f"{one}: {done.returncode}: {done.stderr[-600:]}")
    assert not failed, "\n".join(failed)


def test_what_is_left_out_is_on_a_page() -> None:
    shown = [one.line for page in PAGES for one in fenced(ROOT / "docs" / f"{page}.md")]
    assert [start for start in LEFT_OUT if not any(line.startswith(start) for line in shown)] == []
