"""Services next to the agent's shell: up before the sandbox is handed out, distinguished when they fail, gone with it."""

from __future__ import annotations

import glob
import json
import shutil
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from etude.sandbox.errors import ServiceFailed, UserError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.services import presets
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec, ServiceSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")
has_postgres = pytest.mark.skipif(
    not glob.glob("/usr/lib/postgresql/*/bin/postgres"), reason="PostgreSQL is not installed"
)
has_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="Redis is not installed")
ASK = """
import sys, urllib.request
url, data, method = sys.argv[1:]
print(urllib.request.urlopen(urllib.request.Request(url, data=data.encode() or None, method=method or None)).read().decode())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    made = await open_pool(SandboxSettings(backend="local"))
    yield made
    await made.close()


def spec(*services: ServiceSpec, **more: object) -> SandboxSpec:
    return SandboxSpec(services=services, disk_mb=256, memory_mb=1024, **more)  # type: ignore[arg-type]


async def ask(box: Sandbox, url: str, data: str = "", method: str = "") -> str:
    done = await box.run(["python", "-c", ASK, url, data, method], warm=True)
    assert done.rc == 0, done.err
    return done.out.decode()


async def healthy(box: Sandbox) -> dict[str, bool]:
    return {one.name: one.healthy for one in await box.services()}


async def test_it_is_handed_out_when_its_services_serve(pool: SandboxPool) -> None:
    box = await pool.create(spec(presets.object_store(), presets.log_service()))
    assert await healthy(box) == {"object_store": True, "log_service": True}
    await ask(box, "http://127.0.0.1:9000/b", method="PUT")
    await ask(box, "http://127.0.0.1:9000/b/k", "value", "PUT")
    assert (await ask(box, "http://127.0.0.1:9000/b/k")).strip() == "value"
    await ask(box, "http://127.0.0.1:9428/ingest", '{"message": "seen", "time": 5}')
    assert json.loads(await ask(box, "http://127.0.0.1:9428/query?text=seen"))["records"][0]["time"] == 5
    await box.kill()


async def test_a_start_script_runs_before_the_services(pool: SandboxPool) -> None:
    needs = ServiceSpec("needs", ("/bin/sh", "-c", "cat made && exec sleep 1000"), health=("test", "-f", "made"))
    box = await pool.create(spec(needs, start_script="echo done > made"))
    assert await healthy(box) == {"needs": True}
    await box.kill()


@pytest.mark.parametrize(
    ("service", "said"),
    [
        (
            ServiceSpec("gone", ("/bin/sh", "-c", "echo no database >&2; exit 3"), health=("false",)),
            "ended with 3: no database",
        ),
        (ServiceSpec("deaf", ("sleep", "1000"), health=("false",), start_timeout_s=0.3), "does not serve after 0.3 s"),
        (ServiceSpec("none", ("no-such-program",), health=("false",)), "no-such-program"),
    ],
)
async def test_a_service_that_does_not_come_up_is_named_with_its_last_words(
    pool: SandboxPool, service: ServiceSpec, said: str
) -> None:
    before = pool.stats().live
    with pytest.raises(ServiceFailed, match=said):
        await pool.create(spec(service))
    assert pool.stats().live == before


async def test_a_start_script_that_fails_says_what_it_said(pool: SandboxPool) -> None:
    with pytest.raises(ServiceFailed, match="ended with 4: no disk"):
        await pool.create(spec(start_script="echo no disk >&2; exit 4"))


async def test_a_service_that_dies_is_reported(pool: SandboxPool) -> None:
    box = await pool.create(spec(presets.log_service()))
    await box.run("pkill -f log_service.py || kill $(pgrep -f log_service.py)")
    end_s = time.monotonic() + 10
    while (status := (await box.services())[0]).healthy and time.monotonic() < end_s:
        pass
    assert (status.name, status.healthy) == ("log_service", False)
    await box.kill()


async def test_a_name_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="postgres, redis"):
        presets.by_name("mysql")


@has_redis
async def test_redis_serves(pool: SandboxPool) -> None:
    box = await pool.create(spec(presets.by_name("redis")))
    done = await box.run("redis-cli set a 1 && redis-cli get a")
    assert done.out.split() == [b"OK", b"1"]
    await box.kill()


@has_postgres
@pytest.mark.nightly
async def test_postgres_serves(pool: SandboxPool) -> None:
    box = await pool.create(spec(presets.by_name("postgres")))
    query = (
        "PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; psql -h 127.0.0.1 -U postgres -Atc 'select 6 * 7'"
    )
    done = await box.run(query)
    assert done.out == b"42\n", done.err
    await box.kill()
