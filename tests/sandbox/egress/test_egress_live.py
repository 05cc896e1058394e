"""Through the door to the index that this machine really uses, by its own pip; skipped where there is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from egress_town import Town

from etude.sandbox.egress.errors import BadRule, RequestRefused
from etude.sandbox.egress.packages import discovery
from etude.sandbox.egress.packages.cache import FileCache
from etude.sandbox.egress.packages.pip import PipIndex, PipService
from etude.sandbox.egress.packages.rule import PackageFilter, moment
from etude.sandbox.egress.packages.upstream import IndexUpstream

NAME, UNTIL, LAST = "six", "2021-06-01", "1.16.0"  # six 1.16.0 is of May 2021, 1.17.0 of December 2024


@pytest.mark.nightly
async def test_the_machines_own_index_is_served_up_to_a_date(town: Town, tmp_path: Path) -> None:
    try:
        upstream = IndexUpstream(discovery.pip())
        index = PipIndex(upstream, FileCache(tmp_path / "cache"))
        files = await index.files(NAME)
    except (BadRule, RequestRefused) as problem:
        pytest.skip(f"no index can be reached from here: {problem}")
    if not any(file.published for file in files):
        pytest.skip("this machine's index tells no dates")
    await town.open([], {"pip": PipService(index, PackageFilter(frozenset({NAME}), moment(UNTIL)))})
    command = [
        sys.executable, "-m", "pip", "--isolated", "download", "--no-deps", "--no-cache-dir", "--dest", str(tmp_path),
        "--index-url", f"http://127.0.0.1:{town.port}/pip/simple/", NAME,
    ]  # fmt: skip
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100)
    await upstream.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob(f"{NAME}-{LAST}*"))
