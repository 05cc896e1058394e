"""Back ends are chosen by doing, and refused with a remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from pydantic import ValidationError

from etude.sandbox import interpreter
from etude.sandbox.errors import Unsupported
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

FORBIDDEN = """
import asyncio
from etude.sandbox.inside import seccomp, syscalls
from etude.sandbox.pool import open_pool
from etude.sandbox.errors import Unsupported
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


async def test_without_a_system_python_the_own_one_serves_though_its_home_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interpreter, "SYSTEM_PYTHON", "/usr/bin/no-such-python")
    interpreter.find.cache_clear()
    try:
        pool = await open_pool(SandboxSettings())
        box = await pool.create(SandboxSpec())
        code = "import sys; print(sys.base_prefix)"
        outs = [(await box.run(["python", "-c", code], warm=warm)).out.decode().strip() for warm in (False, True)]
        assert outs == [sys.base_prefix] * 2
        await pool.close()
    finally:
        interpreter.find.cache_clear()


async def test_auto_takes_the_next_that_works_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("there is no bwrap here")

    async def refuse(*_: object) -> None:
        raise Unsupported("no namespaces today")

    monkeypatch.setattr(ZygotePool, "spawn", refuse)
    pool = await open_pool(SandboxSettings())
    found = pool.probe()
    assert (found.backend, found.isolation) == ("bubblewrap", "namespace") and "no namespaces today" in found.reason
    await pool.close()
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Unsupported, match="no namespaces today.*no bwrap.*no podman.*'process'"):  # named, never taken
        await open_pool(SandboxSettings())


async def test_the_ladder_of_back_ends_ends_before_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rung that fails is followed by the next, and weaker isolation is never taken unasked."""
    tried: list[str] = []

    async def refuse(settings: SandboxSettings, backend: str, why: str) -> None:
        tried.append(backend)
        raise Unsupported(f"no {backend} today")

    monkeypatch.setattr("etude.sandbox.pool._opened", refuse)
    with pytest.raises(Unsupported, match="no local today.*no bubblewrap today.*no podman today.*backend='process'"):
        await open_pool(SandboxSettings())
    assert tried == ["local", "bubblewrap", "podman"]


def test_settings_refuse_what_is_not_built() -> None:
    with pytest.raises(ValidationError):
        SandboxSettings.model_validate({"backend": "lxc"})
