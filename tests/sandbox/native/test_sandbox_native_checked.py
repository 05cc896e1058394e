"""All of these tests once more, with a runner that watches its own memory and arithmetic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.sandbox.native import build

CHECKED = ("-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
APART = "not checked and not memory and not mebibyte and not megabytes and not fast"  # figures of a plain build


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_no_access_outside_and_no_undefined_arithmetic(program: Path, tmp_path: Path) -> None:
    checked = tmp_path / "runner"
    try:
        build.compile_to(checked, *CHECKED)
    except build.Unbuildable as error:
        pytest.skip(f"no sanitizers here: {error}")
    environment = {**os.environ, "ETUDE_TEST_NATIVE_RUNNER": str(checked)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent), "-k", APART]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
