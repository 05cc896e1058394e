"""Which pool the settings give."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from etude.sandbox.fake.pool import FakePool
from etude.sandbox.fleet.open import open_sandboxes
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.settings import SandboxSettings


async def test_without_hosts_the_pool_is_this_machines_own() -> None:
    pool = await open_sandboxes(FleetSettings(), SandboxSettings(backend="fake"))
    assert isinstance(pool, FakePool)
    await pool.close()


def test_ray_is_not_imported_before_a_fleet_asks_for_it() -> None:
    code = (
        "import sys, etude.sandbox.fleet.open, etude.sandbox.fleet.simulation.rollouts; sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_settings_refuse_what_is_not_built() -> None:
    for wrong in ({"hosts": "kubernetes"}, {"max_live": 0}, {"creates_per_s": 0}, {"attempts": 0}):
        with pytest.raises(ValidationError):
            FleetSettings.model_validate(wrong)
