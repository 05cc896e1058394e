"""How the command is begun and read from: as a module, with no words, and by readers that leave early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli import answer
from etude.cli.answer import BROKEN_PIPE, Answer, give
from etude.pipeline.run.manifest import RunManifest

MODULES = ["etude", "etude.cli.main"]


def start(module: str, *words: str, home: Path, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    variables = {**os.environ, "ETUDE_SESSIONS": str(home / "sessions")}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words], env=variables, text=True, stdout=stdout, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("module", MODULES)
def test_the_command_is_a_module_and_a_new_machine_has_no_sessions_yet(module: str, tmp_path: Path) -> None:
    out, err = start(module, "session", "list", home=tmp_path).communicate()
    assert out.startswith(f"no sessions yet in {tmp_path / 'sessions'}") and err == ""


def test_without_words_it_prints_its_help_and_no_error(tmp_path: Path) -> None:
    running = start("etude", home=tmp_path)
    out, err = running.communicate()
    assert running.returncode == 0 and "Usage:" in out and "agent" in out
    assert err == ""


@pytest.mark.parametrize("words", [("session", "list"), ("--help",)])
def test_a_reader_that_leaves_early_is_no_error(words: tuple[str, ...], tmp_path: Path) -> None:
    """As `| head` does, once it has its lines."""
    reading, writing = os.pipe()
    os.close(reading)
    running = start("etude", *words, home=tmp_path, stdout=writing)
    os.close(writing)
    _, err = running.communicate()
    assert err == ""


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_a_name_without_an_encoding_is_shown_and_ends_nothing(tmp_path: Path, encoding: str) -> None:
    for flags in (["--dry-run"], ["--dry-run", "--json"], ["--yes"]):
        RunManifest(tmp_path / "r").begin()
        (tmp_path / "r" / os.fsdecode(b"m\xff" + "é".encode())).touch()
        words = [sys.executable, "-m", "etude", "clean", *flags, "r"]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}
        )
        assert done.returncode == 0 and done.stderr == b"", done.stderr
        assert b"m\\udcff" in done.stdout
        if "--json" in flags:
            assert json.loads(done.stdout)["would_keep"] == [os.fsdecode(b"r/m\xff") + "é"]


def test_a_pipe_that_breaks_elsewhere_is_still_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def verb() -> Answer:
        raise BrokenPipeError("the sandbox is gone")

    assert give(verb, as_json=False) == 1
    assert "the sandbox is gone" in capsys.readouterr().err


def test_a_verb_whose_reader_leaves_while_it_prints_ends_as_shells_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def verb() -> Answer:
        raise BrokenPipeError("stdout")

    monkeypatch.setattr(answer, "_reader_is_gone", lambda: True)
    monkeypatch.setattr(answer, "_forget_readers", lambda: None)
    assert give(verb, as_json=False) == BROKEN_PIPE
