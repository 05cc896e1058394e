"""The command lines that pages show do what the pages say: each is run, in the page's order, in one folder that has what they name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_commands import ROOT, DocCommand, fenced
from endpoint_lab import Lab, serving, spoken

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.store import WeightStore
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.harbor import write_task

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
LIBRARY = '[corpus.library]\nheldout_share = 0.3\n[corpus.sources.stdlib]\nkind = "stdlib"\nmax_bytes = 1_200_000\n'
MODELS = ("runs/laptop/base/checkpoint", "runs/laptop/sft/checkpoint", "A", "B", "C")
SESSIONS = ROOT / "tests/tasks/generate/data/installs/semver"
PAGES = ("bench", "capture", "corpus", "harness", "index", "pretraining", "sandbox", "tasks", "weights")
EXERCISES = ["--recipe", "ci", "--tasks", "8", "--concurrency", "2"]
# What another page has made, or a line that is left out would have.
PREPARED = {
    "bench": [
        ["bench", "make", "mine", "--from-tasks", "tasks"],
        ["bench", "make", "ours", "--from-tasks", "tasks"],
    ],
    "pretraining": [["corpus", "build", "recipes/corpus.toml", "--out", "runs/corpus"]],
}
# What a page's placeholders and addresses stand for in the folder; URL is that of a server that answers every request.
REPLACED = {
    "CMD": "true", "COMMAND": "true", "DIR": "CHECKPOINT", "PROJECT": "../service", "ID": "one-bug/heldout/000000", "NAME=URL#MODEL": "m=URL#m",
    "https://host/v1": "URL", "http://127.0.0.1:8000/v1": "URL", "mini": "true",
    "big=https://api.example.com/v1#big": "big=URL#big", "runs/bench/SUITE": "runs/bench/ours",
}  # fmt: skip
# Options that make a command of minutes one of seconds, or give it the price that a budget asks for; by the start of the line.
FURTHER = {
    "./etude bench run exercises --passes": EXERCISES,
    "./etude bench run suites/ours": ["--price-in", "1", "--price-out", "1"],
    "etude agent -m http://127.0.0.1:8000/v1 -p": ["--name", "m"],
    "etude bench make small": ["--count", "2"],
}
# By the start of the line: what other tests cover, or what a person has to end.
LEFT_OUT = {
    "etude index serve": "a server: tests/agent/code_index",
    "etude sandbox shell": "needs a terminal",
    "etude sandbox bench": "measures for minutes",
    "etude weights relay": "runs until it is stopped: tests/learn/weights",
    "etude capture serve": "a server: tests/agent/proxy",
    "etude capture run --model DIR -- claude": "needs Claude Code",
    "etude capture run --model DIR -- sh": "needs Codex",
    "etude tasks install": "installs projects from the network",
    "etude tasks make": "downloads projects",
    "etude tasks difficulty": "needs a folder that `tasks make` made: tests/tasks/test_tasks_difficulty.py",
    "./etude bench run real": "needs the package index: tests/evaluate/bench/test_bench_real.py",
    "./etude bench run exercises real": "needs the package index",
    "./etude bench judge": "needs a judge's answers: tests/cli/test_cli_bench_judging.py",
    "./etude bench audit runs/bench/ours --judge": "needs a judge's answers",
    "./etude bench audit runs/bench/ours --probe": "needs a downloaded model",
    "etude bench make mine --from-sessions": "needs recorded sessions of a person: tests/evaluate/bench",
    "etude bench refresh": "needs recorded sessions of a person: tests/cli/test_cli_bench_refresh.py",
    "etude bench import": "needs foreign rows and images: tests/tasks/importers",
    "./etude bench lite": "needs a ranking of three policies: tests/evaluate/bench/test_bench_lite_suite.py",
    "etude agent -m http://127.0.0.1:8000/v1 --name": "needs a terminal",
    "./etude test": "the tests themselves",
}


class Brief(Lab):
    """An endpoint that ends every conversation at once, whatever it is asked."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        return spoken("It is done.")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving(Brief()) as lab:
        yield lab.url


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
    shutil.copytree(ROOT / "checkpoints/sft-nano", here / "checkpoints/sft-nano")
    shutil.copytree(ROOT / "checkpoints/sft-nano", here / "runs/laptop/rl/checkpoint")
    shutil.copytree(SESSIONS, here / "runs/laptop/sessions")
    source = ExerciseSource(ExerciseSettings())
    for split in ("heldout", "train"):  # sessions are collected of the one, suites made of the other
        for number, task_id in enumerate(source.ids(split, level="one-bug")[:2]):
            write_task(source.task(task_id), here / "tasks" / f"{split}-{number}")
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
    home = {"ETUDE_SESSIONS": str(folder / "sessions"), "XDG_CONFIG_HOME": str(folder / "config")}
    environment = {**os.environ, **home}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def words_of(command: DocCommand, endpoint: str) -> list[str]:
    """The arguments with this folder's names in place of the page's."""
    words = list(command.words)
    for shown, here in REPLACED.items():
        words = [here if word == shown else word.replace(shown, here) if "/v1" in shown else word for word in words]
    further = [more for start, more in FURTHER.items() if command.line.startswith(start)]
    return [word.replace("URL", endpoint) for word in [*words, *(further[0] if further else [])]]


def shown_by(page: str) -> list[DocCommand]:
    return list(fenced(ROOT / "docs" / f"{page}.md"))


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, folder: Path, endpoint: str) -> None:
    for words in PREPARED.get(page, ()):
        assert (done := etude(folder, words)).returncode == 0, done.stderr
    commands = [one for one in shown_by(page) if not one.line.startswith(tuple(LEFT_OUT))]
    assert commands
    failed = []
    for one in commands:
        done = etude(folder, words_of(one, endpoint))
        if done.returncode:
            failed.append(f"{one}: {done.returncode}: {done.stderr[-600:]}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("table", [LEFT_OUT, FURTHER], ids=["left out", "further"])
def test_what_is_left_out_or_shortened_is_on_a_page(table: dict[str, Any]) -> None:
    shown = [one.line for page in PAGES for one in shown_by(page)]
    assert [start for start in table if not any(line.startswith(start) for line in shown)] == []
