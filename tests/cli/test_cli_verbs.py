"""The table of verbs agrees with the verbs, help imports none of them, and the shell completes verbs, options, recipes and runs."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from etude.cli.completion import complete_recipe
from etude.cli.main import app
from etude.cli.status.completion import complete_run, complete_run_path
from etude.cli.verbs import VERBS

ROOT: Any = typer.main.get_command(app)


def test_the_line_of_a_verb_in_the_help_is_the_first_paragraph_of_its_own() -> None:
    for verb in VERBS:
        command = ROOT.commands[verb.name]
        paragraph = inspect.cleandoc(command.short_help or command.help).split("\n\n")[0]
        assert verb.help == " ".join(paragraph.split()), verb.name
        assert (command.hidden, command.name) == (verb.hidden, verb.name)


def test_help_imports_no_verb_and_no_heavy_package(tmp_path: Path) -> None:
    code = "import sys; from etude.cli.main import app\n"
    code += "app(['--help'], standalone_mode=False); names = {v.target.partition(':')[0] for v in __import__('etude.cli.verbs').cli.verbs.VERBS}\n"
    code += "print([n for n in sys.modules if n.removeprefix('etude.cli.') in names or n in ('torch', 'ray', 'numpy', 'asyncio')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]" and "simulate" in done.stdout, done


def completed(words: str, folder: Path) -> list[str]:
    """What bash is offered for the last word of a command line."""
    count = len(words.split(" ")) - 1
    environment = {**os.environ, "_ETUDE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    done = subprocess.run([sys.executable, "-m", "etude"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stderr == "", done
    return done.stdout.split()


def test_the_shell_completes_verbs_options_recipes_and_runs(tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "ledger.jsonl").write_text("")
    (tmp_path / "lab.toml").write_text("")
    assert completed("etude ru", tmp_path) == ["run", "runs"]
    assert "--dry-run" in completed("etude run --d", tmp_path)
    assert completed("etude run la", tmp_path) == ["lab.toml", "laptop"]
    assert completed("etude status mi", tmp_path) == ["mine"]


def test_a_folder_is_completed_with_a_slash_and_a_hidden_one_only_after_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/bench/ours", "recipes", ".git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs" / "bench" / "ours" / "conditions.json").write_text("{}")
    (tmp_path / "recipes" / "own.toml").write_text("")
    assert complete_run("b") == ["bench/ours"] and complete_run_path("runs/b") == ["runs/bench/", "runs/bench/ours"]
    assert complete_recipe("recipes/") == ["recipes/own.toml"] and complete_recipe("absent/") == []
    assert ".git/" in complete_run(".") and ".git/" not in complete_run("")


def test_the_completion_script_of_a_shell_is_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "etude", "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "complete -o default -F _etude_completion etude" in done.stdout, done
