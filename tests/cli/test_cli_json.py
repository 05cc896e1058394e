"""The contract of --json: stdout is exactly one document for every verb, also when something goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from here import Here, document

from etude.cli.answer import Answer, give
from etude.cli.verbs import VERBS

MAIN = [sys.executable, "-c", "from etude.cli.main import main; main()"]


def etude(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *words], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


GOOD: list[tuple[list[str], str]] = [
    (["run", "--dry-run"], "plan"),
    (["pretrain", "--dry-run"], "plan"),
    (["run", "--until", "base", "--dry-run", "--set", "pretrain.base.seed=3"], "plan"),
    (["tasks", "list"], "ids"),
    (["tasks", "show", "one-bug/train/000001"], "instruction"),
    (["tasks", "fingerprint", "--out", "suites"], "files"),
    (["sessions", "collect", "--policy", "expert", "--tasks", "exercises", "--dry-run"], "most_attempts"),
    (["sandbox", "probe"], "available"),
    (["sandbox", "run", "true"], "rc"),
    (["weights", "show", "."], "entries"),
    (["weights", "show", ".", "--verify"], "whole"),
    (["simulate", "--rollouts", "64", "--groups-per-step", "2", "--order", "fifo"], "runs"),
    (["ablate", "cpt", "--dry-run"], "cells"),
    (["plan", "--preset", "qwen3-4b"], "rank_memory_bytes"),
    (["launch", "slurm", "laptop", "--set", "pretrain.short.loop.parallel.shard=2"], "script"),
    (["launch", "kuberay", "laptop", "--image", "i", "--volume", "v"], "spec"),
    (["doctor"], "findings"),
    (["agents", "ls"], "agents"),
    (["clean", "--dry-run"], "removed"),
    (["clean"], "removed"),
    (["runs", "."], "runs"),
]
BAD: list[tuple[list[str], str]] = [
    (["run", "absent.toml"], "RecipeError"),
    (["run", "--set", "rl.group_sise=4"], "RecipeError"),
    (["run", "--set", "rl.steps=many", "--dry-run"], "RecipeError"),
    (["run", "--only", "absent"], "PlanError"),
    (["run", "--from", "rl", "--until", "base"], "PlanError"),
    (["plan", "--preset", "absent"], "ValueError"),
    (["sft"], "PlanError"),
    (["rl"], "PlanError"),
    (["bench"], "PlanError"),
    (["run", "--absent"], "UsageError"),
    (["absent"], "UsageError"),
    (["report", "."], "NotARun"),
    (["reload", "."], "ReloadRefused"),
    (["reload"], "ReloadRefused"),
    (["tasks", "show", "absent"], "NoTask"),
    (["tasks", "list", "--level", "absent"], "NoTask"),
    (["session", "show", "absent.jsonl"], "FileNotFoundError"),
    (["session", "replay", "absent.jsonl"], "FileNotFoundError"),
    (["sessions", "collect", "--policy", "absent", "--tasks", "exercises"], "UnknownPolicy"),
    (["sessions", "collect", "--policy", "expert", "--tasks", "absent"], "SuiteError"),
    (["weights", "show", "absent"], "NoStore"),
    (["base", "compare", "absent", "--on", "."], "CheckpointError"),
    (["tokenizer", "check", "absent"], "FileNotFoundError"),
    (["model", "check", "absent"], "FileNotFoundError"),
    (["model", "push", "absent", "me/mine"], "HubError"),
    (["model", "import", "absent.gguf", "--out", "x"], "FileNotFoundError"),
    (["serve", "absent"], "FileNotFoundError"),
    (["tokenizer", "train", "--out", "new"], "NothingToDo"),
    (["corpus", "build"], "BuildError"),
    (["corpus", "build", "--set", "corpus.sources.mine.kind=fodler"], "RecipeError"),
    (["corpus", "show", "absent", "--summary"], "FileNotFoundError"),
    (["corpus", "show", "absent"], "FileNotFoundError"),
    (["index", "build", "absent"], "IndexRefused"),
    (["index", "stats", "."], "NotBuilt"),
    (["gpu", "check", "--out", "absent/gpu.json"], "FileNotFoundError"),
    (["gpu", "check", "--device", "cuda"], "DeviceMissing"),
    (["agents", "stop", "absent"], "UsageError"),
    (["capture", "serve", "--model", "absent"], "CaptureError"),
    (["clean", ".", "--yes"], "CleanError"),
    (["runs"], "NoRuns"),
    (["status", "absent"], "NoRuns"),
]
# Its --json is a stream, tried in tests/agent/app.
STREAMS = {"agent"}


@pytest.mark.parametrize(("words", "key"), GOOD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_verb_answers_with_one_document(here: Here, words: list[str], key: str) -> None:
    assert key in document(here(*words, "--json"))


@pytest.mark.parametrize(
    ("words", "kind"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_an_error_is_one_document_too(here: Here, tmp_path: Path, words: list[str], kind: str) -> None:
    done = here(*words, "--json")
    found = document(done)
    assert done.returncode != 0 and found["error"]["type"] == kind
    assert found["error"]["message"].splitlines()[0] in done.stderr
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


def test_every_verb_is_tried_above() -> None:
    verbs = {verb.name for verb in VERBS}
    assert verbs == {words[0] for words, _ in [*GOOD, *BAD]} - {"absent"} | STREAMS


def test_what_children_and_libraries_print_goes_to_stderr(tmp_path: Path) -> None:
    code = """
import os, subprocess, sys
from etude.cli.answer import Answer, give
from etude.cli.main import app
def verb():
    print("a print")
    os.write(1, b"a native library\\n")
    subprocess.run(["echo", "a child"])
    return Answer({"ok": True}, "for a person")
sys.exit(give(verb, as_json=True))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == '{"ok": true}\n'
    assert {"a print", "a native library", "a child"} <= set(done.stderr.splitlines())


def test_without_json_the_answer_is_text_on_stdout_and_errors_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> Answer:
        raise FileNotFoundError("no such thing")

    assert give(lambda: Answer({}, "hello", 3), as_json=False) == 3
    assert give(broken, as_json=False) == 1
    assert capfd.readouterr() == ("hello\n", "error: no such thing\n")


def test_a_fault_of_ours_shows_its_place(capfd: pytest.CaptureFixture[str]) -> None:
    assert give(lambda: 1 // 0, as_json=False) == 1
    assert "Traceback" in capfd.readouterr().err


def test_exit_status_of_a_sandboxed_command_is_ours(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "word").write_text("hi")
    done = etude(tmp_path, "sandbox", "run", "--files", "in", "--json", "--", "sh", "-c", "cat word; exit 7")
    assert (done.returncode, document_of(done)["out"]) == (7, "hi")


def document_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return json.loads(done.stdout)


def test_help_opens_without_heavy_rooms(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    times = []
    for words in (["--help"], ["run", "--dry-run"]):
        began = time.perf_counter()
        done = etude(tmp_path, *words)
        times.append(f"etude {' '.join(words)}: {time.perf_counter() - began:.2f} s")
        assert done.returncode == 0, done.stderr
    with capfd.disabled():
        print("\n" + "\n".join(times))  # printed, not asserted: a shared machine may be slow
    code = "import sys, etude.cli.main; print(*{'torch', 'ray', 'numpy', 'pydantic'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert loaded.strip() == ""


def test_report_is_rebuilt_from_a_runs_files(here: Here, tmp_path: Path) -> None:
    run = tmp_path / "mine"
    run.mkdir()
    (run / "recipe.toml").write_text('[run]\nname = "mine"\n')
    found = document(here("report", "mine", "--json"))
    assert found["schema"] == 1 and (run / "report.html").is_file()


def test_clean_removes_only_runs_and_only_when_reported(here: Here, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    (run / "sft").mkdir(parents=True)
    (run / "ledger.jsonl").touch()
    other = tmp_path / "runs" / "precious"
    other.mkdir()
    assert here("clean", "--json").returncode == 1 and run.is_dir()  # no one to ask
    assert here("clean", "--stage", "sft", "--yes").returncode == 0
    assert run.is_dir() and not (run / "sft").exists()
    assert document(here("clean", "--yes", "--json"))["removed"][0]["path"] == "runs/a"
    assert not run.exists() and other.is_dir()


def test_clean_refuses_a_run_in_progress(tmp_path: Path) -> None:
    from etude.pipeline.run.lock import RunLock

    (tmp_path / "ledger.jsonl").touch()
    with RunLock(tmp_path):
        done = etude(tmp_path.parent, "clean", str(tmp_path), "--yes", "--json")
        assert document(done)["error"]["type"] == "RunBusy" and str(os.getpid()) in done.stderr
    assert tmp_path.is_dir()
