"""Hosts as Ray actors: the same interface, in a process of its own (see `ray_story.py`)."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings

# Read when ray is imported: loopback only, no usage reports, and a token that only this test knows.
SWITCHES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
STORY = Path(__file__).with_name("ray_story.py")


@pytest.mark.nightly
@pytest.mark.timeout(240)
async def test_a_fleet_over_ray_is_a_pool_and_a_dead_actor_a_lost_host() -> None:
    """Test 28 of docs/sandbox.md, over Ray, with the fake and with what this machine has."""
    backends = ["fake"]
    try:
        pool = await open_pool(SandboxSettings(backend="local"))
    except Unsupported:
        pass  # the test runs with the fake alone
    else:
        await pool.close()
        backends.append("local")
    words = [sys.executable, str(STORY), *backends]
    env = {**os.environ, **SWITCHES}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "death done"
