"""What every test shares: the nightly set stays out unless --all is given."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Other work may share the machine: how long one example takes is no promise, and speed has tests of its own.
settings.register_profile("etude", deadline=None)
settings.load_profile("etude")

# Test models are tiny: a second thread only waits, and on a busy machine it waits long. Read when torch is first imported,
# here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", default=False, help="also run the tests marked nightly")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
