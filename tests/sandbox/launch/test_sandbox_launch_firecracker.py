"""Back end `firecracker`: its probe for real, its API and its way to a runner against a program that replaces firecracker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import etude
from etude.sandbox import interpreter
from etude.sandbox.errors import InfraError, SandboxDied, Unsupported
from etude.sandbox.launch.firecracker import firecracker, relay
from etude.sandbox.launch.firecracker.api import Api
from etude.sandbox.launch.firecracker.firecracker import FirecrackerRuntime
from etude.sandbox.launch.launcher import Launcher
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import FirecrackerSettings, SandboxSettings
from etude.sandbox.spec import Network, SandboxSpec

_FAKE = Path(__file__).with_name("fake_firecracker.py")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FirecrackerSettings:
    """With the replacement, and KVM assumed."""
    program = tmp_path / "firecracker"
    source = Path(etude.__file__).parents[1]
    fixed = f"export PYTHONPATH={source} ASKED={tmp_path}/asked FAULT=$(cat {tmp_path}/fault 2>/dev/null)"
    program.write_text(f'#!/bin/sh\n{fixed}\nexec {sys.executable} {_FAKE} "$@"\n')
    program.chmod(0o755)
    for name in ("kernel", "rootfs"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(firecracker, "_kvm", lambda: "")
    return FirecrackerSettings(program=str(program), kernel=f"{tmp_path}/kernel", rootfs=f"{tmp_path}/rootfs")


@pytest.fixture
def api(settings: FirecrackerSettings, tmp_path: Path) -> Iterator[Api]:
    process = subprocess.Popen([settings.program, "--api-sock", f"{tmp_path}/api", "--id", "x"])
    end_s = time.monotonic() + 20
    found = Api(tmp_path / "api")
    while not found.answers() and time.monotonic() < end_s:
        time.sleep(0.01)
    yield found
    process.kill()
    process.wait()


def _asked(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "asked").read_text().splitlines()]


async def _opened(settings: FirecrackerSettings) -> LocalPool:
    python = interpreter.find()
    return await LocalPool.open(
        SandboxSettings(backend="firecracker"), Launcher(FirecrackerRuntime(python, settings), python)
    )


async def test_the_back_end_is_refused_with_what_its_probe_found_in_time() -> None:
    """Test 30 of docs/sandbox.md: nothing is set here, so whatever this machine's KVM can do, it is refused."""
    start_s = time.monotonic()
    with pytest.raises(Unsupported, match="back end firecracker: .*; take sandbox.backend='gvisor' or 'local'"):
        await open_pool(SandboxSettings(backend="firecracker"))
    assert time.monotonic() - start_s < 5.0 + 5.0  # the second half for a busy machine


def test_a_guest_that_spins_is_killed_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test 30 of docs/sandbox.md, on every machine."""
    if os.uname().machine != "x86_64":
        pytest.skip("the probe knows x86_64 alone")
    (tmp_path / "guest.py").write_text("while True: pass\n")
    monkeypatch.setattr(firecracker, "__file__", str(tmp_path / "probe.py"))
    monkeypatch.setattr(firecracker, "LIMIT_S", 0.3)
    with pytest.raises(Unsupported, match="did not end within 0.3 s: this KVM runs none"):
        firecracker.require(FirecrackerSettings())
    (tmp_path / "guest.py").write_text("print('KVM_CREATE_VM: Device or resource busy'); raise SystemExit(1)\n")
    with pytest.raises(Unsupported, match="KVM does not work here: KVM_CREATE_VM: Device or resource busy"):
        firecracker.require(FirecrackerSettings())


def test_program_kernel_and_root_are_looked_at_in_turn(settings: FirecrackerSettings, tmp_path: Path) -> None:
    firecracker.require(settings)
    for change, why in [
        ({"program": "no-such-firecracker"}, "there is no no-such-firecracker"),
        ({"program": "true"}, "is no firecracker"),
        ({"kernel": ""}, "sandbox.firecracker.kernel is not set"),
        ({"rootfs": f"{tmp_path}/absent"}, "rootfs: .*absent: No such file"),
    ]:
        with pytest.raises(Unsupported, match=why):
            firecracker.require(settings.model_copy(update=change))


def test_the_api_is_spoken(api: Api, tmp_path: Path) -> None:
    assert api.state() == "Not started"
    api.machine(2, 512)
    api.boot_source("/k", "quiet")
    api.drive("root", "/r", root=True)
    api.vsock(3, f"{tmp_path}/v")
    api.start()
    assert api.state() == "Running"
    api.pause()
    assert api.state() == "Paused"
    api.write_snapshot("/s", "/m")
    api.load_snapshot("/s", "/m", resume=True)
    api.resume()
    assert _asked(tmp_path) == [
        ["PUT", "/machine-config", {"vcpu_count": 2, "mem_size_mib": 512}],
        ["PUT", "/boot-source", {"kernel_image_path": "/k", "boot_args": "quiet"}],
        [
            "PUT",
            "/drives/root",
            {"drive_id": "root", "path_on_host": "/r", "is_root_device": True, "is_read_only": True},
        ],
        ["PUT", "/vsock", {"guest_cid": 3, "uds_path": f"{tmp_path}/v"}],
        ["PUT", "/actions", {"action_type": "InstanceStart"}],
        ["PATCH", "/vm", {"state": "Paused"}],
        ["PUT", "/snapshot/create", {"snapshot_type": "Full", "snapshot_path": "/s", "mem_file_path": "/m"}],
        [
            "PUT",
            "/snapshot/load",
            {
                "snapshot_path": "/s",
                "mem_backend": {"backend_type": "File", "backend_path": "/m"},
                "resume_vm": True,
            },
        ],
        ["PATCH", "/vm", {"state": "Resumed"}],
    ]


def test_an_api_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"PUT /machine-config: .*No such file"):
        Api(tmp_path / "absent").machine(1, 1)


async def test_a_machine_is_booted_and_served_over_its_vsock(settings: FirecrackerSettings, tmp_path: Path) -> None:
    pool = await _opened(settings)
    assert (pool.probe().isolation, pool.probe().egress) == ("vm", False)
    spec = SandboxSpec(files={"a": b"served"}, isolation_min="vm", workdir="/testbed", memory_mb=128, disk_mb=32)
    box = await pool.create(spec)
    assert (await box.run("anything")).out == b"served"
    machines = [body for _, path, body in _asked(tmp_path) if path == "/machine-config"]
    boots = [body["boot_args"] for _, path, body in _asked(tmp_path) if path == "/boot-source"]
    assert machines[-1] == {"vcpu_count": 1, "mem_size_mib": 192}
    assert boots[-1].endswith("etude.port=5252 etude.workdir=/testbed etude.disk_mb=32")
    for refused, why in [
        (SandboxSpec(network=Network("allowlist")), "allowlist"),
        (SandboxSpec(read_only_binds=(("/usr", "/opt/usr"),)), "read_only_binds"),
        (SandboxSpec(workdir="/a b"), "blanks"),
        (SandboxSpec(image="x", warm_python=False), "image"),
    ]:
        with pytest.raises(Unsupported, match=why):
            await pool.create(refused)
    await box.kill()
    folder: Path = pool._backend._runtime._folder  # type: ignore[attr-defined]
    assert [path.name for path in folder.iterdir()] == ["program"]
    assert (folder / "program").stat().st_size % 512 == 0
    await pool.close()
    assert not folder.exists()


async def test_a_machine_that_is_refused_leaves_nothing(settings: FirecrackerSettings, tmp_path: Path) -> None:
    pool = await _opened(settings)
    folder: Path = pool._backend._runtime._folder  # type: ignore[attr-defined]
    (tmp_path / "fault").write_text("drives")
    with pytest.raises(InfraError, match="PUT /drives/root: 400 this one is refused"):
        await pool.create(SandboxSpec())
    assert [path.name for path in folder.iterdir()] == ["program"]
    await pool.close()


async def test_the_death_of_a_machine_is_heard(settings: FirecrackerSettings) -> None:
    """Test 13 of docs/sandbox.md."""
    pool = await _opened(settings)
    box = await pool.create(SandboxSpec())
    box._channel._sock.shutdown(2)  # as when the guest powers off
    with pytest.raises(SandboxDied):
        for _ in range(1000):
            await box.run("anything")
            await asyncio.sleep(0.01)
    await box.kill()
    await pool.close()


def test_a_port_on_which_nobody_listens_is_given_up(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as process:
        with pytest.raises(InfraError, match="nothing inside listened on vsock port 7 within 0.2 s"):
            relay.dial(tmp_path / "vsock", 7, process, 0.2)
        process.kill()
    assert relay.dial(tmp_path / "vsock", 7, process, 0.2) is None
