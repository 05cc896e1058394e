"""`etude session collect` against a server that stops answering."""

from __future__ import annotations

from pathlib import Path

import pytest
from endpoint_lab import Lab, nop, serving
from here import Here
from market import exercises

from etude.pipeline.run import participants


def test_a_teacher_that_dies_is_one_line_and_the_same_command_goes_on(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participants, "RETRIES", 1)
    lab = Lab(tasks=exercises()[:1] * 1000, player=nop, refuse=lambda number: (502, {}, "gone") if number > 3 else None)
    with serving(lab):
        words = ("session", "collect", "-p", f"m={lab.url}#m", "--tasks", "exercises", "--count", "12", "--out", str(tmp_path / "s"))  # fmt: skip
        done = here(*words, "--set", "concurrency=2")
        assert done.returncode == 1 and "Traceback" not in done.stderr
        (said,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert "stopped answering" in said and "HTTP 502" in said and "same command again" in said
        lab.refuse = lambda number: None
        assert here(*words).returncode == 0
