"""The suites once more as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.skipif(os.geteuid() != 0, reason="root tries to be an ordinary user")
@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_an_ordinary_user_has_the_same_sandboxes() -> None:
    """The suites once more as `nobody`, by the system's Python: the one that runs this may lie in a closed home."""
    repository = Path(__file__).resolve().parents[2]
    packages = sysconfig.get_paths()["purelib"]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin") or ""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-m", "pytest", "-q", "-x"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": f"{packages}:{repository / 'src'}"}
    if not python or shutil.which("setpriv") is None:
        pytest.skip(f"needs setpriv and a python{version} of the system")
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "-p", "no:cacheprovider", "tests/security", "tests/sandbox"],
        cwd=repository,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:].decode() + done.stderr[-2000:].decode()
