"""Back ends are chosen by doing, and refused with a remedy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings

FORBIDDEN = """
import asyncio
from etude.sandbox.inside import seccomp, syscalls
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Unsupported
from etude.sandbox.settings import SandboxSettings
syscalls.install_filter(seccomp.program())
try:
    asyncio.run(open_pool(SandboxSettings()))
except Unsupported as error:
    print("refused:", error)
"""


def test_where_user_namespaces_are_forbidden_the_refusal_names_step_and_remedy() -> None:
    done = subprocess.run([sys.executable, "-c", FORBIDDEN], capture_output=True, text=True, timeout=60, check=False)
    step = "mount(" if os.geteuid() == 0 else "unshare("
    assert done.stdout.startswith("refused:") and step in done.stdout and "sysctl" in done.stdout, done.stderr


async def test_the_probe_says_what_was_found() -> None:
    pool = await open_pool(SandboxSettings())
    found = pool.probe()
    assert (found.backend, found.isolation, found.available) == ("local", "namespace", True)
    assert "python 3." in found.reason and found.limits
    await pool.close()


def test_settings_refuse_what_is_not_built() -> None:
    with pytest.raises(ValidationError):
        SandboxSettings.model_validate({"backend": "docker"})
