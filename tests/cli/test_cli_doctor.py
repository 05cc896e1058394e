"""`etude doctor` by purpose: what works, what limits it, what is missing and which command brings it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.agent.app.errors import UnavailableError
from etude.agent.app.workspace_access import WorkspaceAccess, open_workspace
from etude.cli import purposes as module
from etude.cli.doctor import doctor
from etude.cli.purposes import Around, Lack, Machine, Purpose, find_around, install, purposes
from etude.core.events.finite import dumps
from etude.sandbox.errors import Unsupported
from etude.sandbox.spec import ExecResult

GIB = 1 << 30
POOL = {"backend": "local", "snapshots": True, "limits": "cgroup v2"}
FACTS = {"memory_bytes": 16 * GIB, "cores": 4.0, "gpus": ["NVIDIA H100"]}
VERSIONS = {"torch": "2.13.0", "ray": "2.60.0"}
EVERY_PROGRAM: Callable[..., str | None] = lambda name, *_: f"/usr/bin/{name}"


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", EVERY_PROGRAM)


def by_name(**changes: Any) -> dict[str, Purpose]:
    given: dict[str, Any] = {
        "facts": FACTS, "versions": VERSIONS, "free_bytes": 100 * GIB, "pool": POOL, "around": Around("bubblewrap"),
    } | changes  # fmt: skip
    return {one.name: one for one in purposes(Machine(**given), 8 * GIB, 2 * GIB)}


def states(**changes: Any) -> dict[str, str]:
    return {name: one.state for name, one in by_name(**changes).items()}


def test_a_machine_that_has_everything_serves_every_purpose() -> None:
    assert states() == dict.fromkeys(("agent", "bench", "run", "GPU"), "works")


def test_the_agent_works_without_bubblewrap_and_the_line_says_what_serves() -> None:
    agent = by_name(around=Around("local", ("back end bubblewrap: there is no bwrap",)))["agent"]
    assert agent.state == "works"
    assert agent.uses == (
        "sandbox around the folder by local, with the same rules as bubblewrap (back end bubblewrap: there is no bwrap)"
    )


def test_without_a_sandbox_around_a_folder_only_the_agent_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, *_: None if name == "bwrap" else f"/usr/bin/{name}")
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    found = by_name(around="user namespaces are off")
    assert {name: one.state for name, one in found.items() if one.state != "works"} == {"agent": "does not work"}
    remedy = "apt-get install bubblewrap; or work without protection: etude agent --sandbox none"
    assert found["agent"].missing == (Lack("no sandbox around a folder: user namespaces are off", remedy),)


def test_without_sandboxes_neither_bench_nor_run_works_and_the_gpu_does() -> None:
    assert states(pool="user namespaces are off") == {
        "agent": "works", "bench": "does not work", "run": "does not work", "GPU": "works",
    }  # fmt: skip


def test_without_torch_and_ray_agent_and_bench_work() -> None:
    found = by_name(versions={})
    assert {name: one.state for name, one in found.items()} == {
        "agent": "works", "bench": "works", "run": "does not work", "GPU": "does not work",
    }  # fmt: skip
    assert [lack.what for lack in found["run"].missing] == ["the package torch is absent", "the package ray is absent"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"facts": {**FACTS, "memory_bytes": 4 * GIB}}, "4.0 GiB of memory; the laptop recipe may need 8"),
        ({"facts": {**FACTS, "cores": 1.0}}, "1 usable cores; two are assumed, so runs take longer"),
        ({"free_bytes": GIB}, "1.0 GiB of disk"),
        ({"pool": {**POOL, "snapshots": False}}, "no snapshots and images"),
        ({"pool": {**POOL, "limits": "rlimits"}}, "no control group: each process has separate limits"),
    ],
)
def test_what_is_small_limits_a_run_and_does_not_forbid_it(changes: dict[str, Any], what: str) -> None:
    run = by_name(**changes)["run"]
    assert run.state == "works with limits" and [lack.what for lack in run.limits] == [what]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"facts": {**FACTS, "gpus": []}}, "nvidia-smi names no GPU"),
        ({"versions": {**VERSIONS, "torch": "2.13.0+cpu"}}, "torch 2.13.0+cpu has no CUDA"),
    ],
)
def test_a_gpu_serves_only_with_a_driver_and_a_build_of_torch_for_it(changes: dict[str, Any], what: str) -> None:
    gpu = by_name(**changes)["GPU"]
    assert gpu.state == "does not work" and gpu.missing[0].what == what and gpu.missing[0].remedy


@pytest.mark.parametrize(
    ("manager", "uid", "command"),
    [
        ("apt-get", 0, "apt-get install git"),
        ("dnf", 0, "dnf install git"),
        ("apk", 0, "apk add git"),
        ("", 0, "install the package git"),
    ],
)
def test_a_remedy_is_a_command_of_this_machines_package_manager(
    manager: str, uid: int, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, *_: name if name == manager else None)
    monkeypatch.setattr(module.os, "geteuid", lambda: uid)
    assert install("git") == command


async def test_the_agent_decides_by_the_function_that_doctor_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(spec: object) -> None:
        raise Unsupported("nothing serves here")

    monkeypatch.setattr("etude.sandbox.pool.open_around", refuse)
    with pytest.raises(UnavailableError, match="nothing serves here"):
        async with open_workspace(WorkspaceAccess.validated(tmp_path, "workspace", False)):
            pass


def test_doctor_repeats_why_nothing_serves_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(spec: object) -> None:
        raise Unsupported("nothing serves here")

    monkeypatch.setattr("etude.sandbox.pool.open_around", refuse)
    assert find_around() == "nothing serves here"


def test_a_sandbox_that_runs_no_command_does_not_serve_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        async def run(self, argv: object) -> ExecResult:
            return ExecResult(127, b"", b"true: not found\n")

        async def close(self) -> None: ...

    async def opened_around(spec: object) -> object:
        return Broken(), Broken(), ()

    monkeypatch.setattr("etude.sandbox.pool.open_around", opened_around)
    assert find_around() == "a command in the agent's sandbox ended with exit status 127: true: not found"


def test_the_document_has_one_object_for_each_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.cli.doctor.find_pool", lambda: {**POOL, "isolation": "namespace", "available": True})
    monkeypatch.setattr("etude.cli.doctor.find_around", lambda: Around("local"))
    answer = doctor(json=True)
    assert "local (supported, namespace, cgroup v2)" in answer.text and "local (supported)\n" in answer.text
    document = json.loads(dumps(answer.document))
    assert list(document["purposes"]) == ["agent", "bench", "run", "gpu"]
    for one in document["purposes"].values():
        assert set(one) == {"state", "uses", "limits", "missing"}
        assert one["state"] in ("works", "works with limits", "does not work")
        assert all(set(lack) == {"what", "remedy"} for lack in [*one["limits"], *one["missing"]])
