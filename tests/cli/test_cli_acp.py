"""`etude acp`: what is wrong with its options is said before anything is served."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: str, stdout: object = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = "import sys; sys.argv[0] = 'etude'; from etude.cli.main import main; main()"
    command = [sys.executable, "-c", program, "acp", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env)  # pyright: ignore


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "m", "--preset", "nano"), "'nano' is not for endpoints"),
        (("--model", "m", "--approval", "yolo"), "'yolo' is no approval policy"),
        (("--model", "m", "--settings", "no/such.toml"), "there is no such file"),
        ((), "--model"),
    ],
)
def test_a_bad_option_is_one_line_with_the_remedy(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.returncode != 0 and message in done.stderr and "Traceback" not in done.stderr


def test_a_file_is_no_editor(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as file:
        done = run("--model", "m", stdout=file)
    assert done.returncode == 1 and "an editor starts this command" in done.stderr and "Traceback" not in done.stderr
