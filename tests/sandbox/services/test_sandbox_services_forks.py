"""Services of forks and restores: restarted over the same files, for each child by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from etude.sandbox.errors import SandboxError, ServiceFailed, Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.services import presets
from etude.sandbox.services.supervisor import ServiceSupervisor
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec, ServiceSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")
SPEC = SandboxSpec(services=(presets.log_service(),), disk_mb=256, memory_mb=512)
ASK = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:9428/{sys.argv[1]}", sys.argv[2].encode() or None).read().decode())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="local", layers=str(tmp_path_factory.mktemp("layers"))))
    except Unsupported as error:
        pytest.skip(str(error))
    if not made.probe().snapshots:
        await made.close()
        pytest.skip(f"no snapshots here: {made.probe().reason}")
    yield made
    await made.close()


async def _ask(box: Sandbox, what: str, data: str = "") -> str:
    done = await box.run(["python", "-c", ASK, what, data], warm=True)
    assert done.rc == 0, done.err
    return done.out.decode()


async def _log(box: Sandbox, message: str) -> None:
    await _ask(box, "ingest", json.dumps({"message": message}))


async def _logged(box: Sandbox) -> list[str]:
    return [one["message"] for one in json.loads(await _ask(box, "query"))["records"]]


async def test_a_fork_serves_what_its_parent_had_and_each_goes_on_alone(pool: SandboxPool) -> None:
    box = await pool.create(SPEC)
    await _log(box, "before")
    children = await box.fork(2)
    for number, child in enumerate(children):
        assert not isinstance(child, SandboxError)
        assert [(one.name, one.healthy) for one in await child.services()] == [("log_service", True)]
        await _log(child, f"child {number}")
        assert sorted(await _logged(child)) == ["before", f"child {number}"]
        await child.kill()
    await _log(box, "after")
    assert sorted(await _logged(box)) == ["after", "before"]
    await box.kill()


async def test_a_restore_starts_the_services_of_its_own_spec(pool: SandboxPool) -> None:
    box = await pool.create(replace(SPEC, start_script="echo started >>starts"))
    await _log(box, "kept")
    ref = await box.snapshot()
    await box.kill()
    served, plain = *await pool.restore(ref, box.spec), *await pool.restore(ref, SandboxSpec())
    assert not isinstance(served, SandboxError) and not isinstance(plain, SandboxError)
    assert await _logged(served) == ["kept"] and await served.read("starts") == b"started\n" * 2
    assert await plain.services() == [] and await plain.read("starts") == b"started\n"
    for one in (served, plain):
        await one.kill()


async def test_a_service_that_fails_in_one_child_is_that_childs_error_alone(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await pool.create(SPEC)
    start, births = ServiceSupervisor.start, iter(range(3))
    broken = replace(SPEC, services=(ServiceSpec("sick", ("/bin/sh", "-c", "echo no >&2; exit 3"), health=("false",)),))

    async def second_is_sick(self: ServiceSupervisor, spec: SandboxSpec) -> None:
        await start(self, broken if next(births) == 1 else spec)

    monkeypatch.setattr(ServiceSupervisor, "start", second_is_sick)
    before = pool.stats().live
    children = await box.fork(3)
    failed = [one for one in children if isinstance(one, SandboxError)]
    alive = [one for one in children if not isinstance(one, SandboxError)]
    assert len(alive) == 2 and pool.stats().live == before + 2
    assert isinstance(failed[0], ServiceFailed) and "sick ended with 3: no" in str(failed[0])
    for child in alive:
        assert await _logged(child) == []
        await child.kill()
    await box.kill()
