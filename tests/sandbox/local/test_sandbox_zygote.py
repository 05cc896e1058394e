"""The zygote owes nothing to the moods of the process that started it."""

from __future__ import annotations

import os

import pytest

from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_client_whose_files_are_closed_to_others_has_the_same_sandboxes() -> None:
    before = os.umask(0o077)
    try:
        pool = await LocalPool.open(SandboxSettings(backend="local"), ZygotePool())
        box = await pool.create(SandboxSpec(workdir="/deep/down/work"))
    finally:
        os.umask(before)
    shown = await box.run("umask; touch made; stat -c %a made . ..; cat /etc/hosts; id -un")
    assert shown.out.split()[:4] == [b"0022", b"644", b"755", b"755"] and shown.out.endswith(b"etude\n"), shown
    await pool.close()


async def test_a_birth_without_room_for_its_group_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Test 15 of docs/sandbox.md: the step before the first process."""
    pool = await LocalPool.open(SandboxSettings(backend="local"), ZygotePool())
    groups = pool._creator._groups

    def refuse(*_: object) -> None:
        raise CapacityExhausted("no group today")

    monkeypatch.setattr(type(groups), "available", True)
    monkeypatch.setattr(groups, "make", refuse)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(CapacityExhausted, match="no group today"):
            await pool.create(SandboxSpec())
    assert len(os.listdir("/proc/self/fd")) == before
    await pool.close()
