"""What `test_fleet_ray.py` runs in a process of its own: a fleet over Ray actors on this machine, from its opening to its end.

Ray starts once in the life of a process and other tests start it too; here it is alone, and its switches stand in the
environment before it is imported (`test_fleet_ray.py` sets them). Any failure is a traceback and a status not 0.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from functools import partial

import ray

from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound, UserError
from etude.sandbox.fleet.errors import HostLost
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.open import open_sandboxes
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.wire.ray_host import HostActor, RayLink
from etude.sandbox.fleet.wire.remote import RemoteHost
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec


async def files_streams_and_errors(backend: str) -> None:
    pool = await open_sandboxes(FleetSettings(hosts="ray", max_live=20), SandboxSettings(backend=backend))
    assert f"x {pool.probe().backend.split(' x ')[1]}" in pool.probe().backend, pool.probe()
    box = await pool.create(SandboxSpec(files={"a": b"\xff\x001"}), key="once")
    assert await pool.create(SandboxSpec(), key="once") is box
    assert (await box.run("cat a; false")).out == b"\xff\x001" and await box.export() == {"a": b"\xff\x001"}
    many = await asyncio.gather(*(box.run(f"echo {number}") for number in range(20)))
    assert [one.out for one in many] == [b"%d\n" % number for number in range(20)]
    try:
        await box.read("absent")
        raise AssertionError("an absent file was read")
    except UserError as error:
        assert "absent" in str(error)
    if pool.probe().snapshots:
        ref = await box.snapshot()
        await box.write("a", b"2")
        children = await box.fork(2)
        assert [await one.read("a") for one in children if not isinstance(one, SandboxError)] == [b"2", b"2"]
        (back,) = await pool.restore(ref, SandboxSpec())
        assert not isinstance(back, SandboxError) and await back.read("a") == b"\xff\x001"
    process = await box.exec(["cat"], stdin=None)
    await process.write(b"streamed ")
    await process.write(b"whole")
    await process.close_stdin()
    assert b"".join([chunk.data async for chunk in process.stream()]) == b"streamed whole"
    assert (await process.wait()).rc == 0
    await pool.close()
    try:
        await box.run("true")
        raise AssertionError("a closed fleet's sandbox runs")
    except (SandboxNotFound, HostLost):
        print(backend, "done")


async def layers_from_actor_to_actor() -> None:
    """Two hosts of this machine, each with a store of its own: what one lacks comes from the other by way of Ray, in pieces."""
    hosts: list[tuple[RemoteHost, RayLink]] = []
    for name in ("one", "two"):
        settings = SandboxSettings(backend="local", layers=tempfile.mkdtemp(prefix=f"{name}-", dir=temp))
        actor = ray.remote(HostActor).options(num_cpus=0, max_concurrency=100)
        link = RayLink(partial(actor.remote, name, settings, FleetSettings(max_live=2)))
        assert not await link.open()
        hosts.append((RemoteHost(name, link), link))
    fleet = await Fleet.open([host for host, _ in hosts])
    fleet.after_close = [link.close for _, link in hosts]
    big = os.urandom(9 << 20)
    box = await fleet.create(SandboxSpec(files={"a": b"1"}))
    await box.write("big", big)
    children = [one for one in await box.fork(3) if not isinstance(one, SandboxError)]
    assert len(children) == 3 and len({one.id.split("/")[0] for one in children}) == 2
    for one in children:
        assert await one.read("big", max_bytes=len(big)) == big
    assert fleet.shipping.shipped == 1
    await fleet.close()
    print("layers done")


async def a_host_that_dies() -> None:
    """Its actor is killed while a command runs: that fails with a typed error, and nothing hangs. Another is begun, and after a rest the host
    is trusted with sandboxes again."""
    pool = await open_sandboxes(FleetSettings(hosts="ray", patience_s=1.0, attempts=2), SandboxSettings(backend="fake"))
    box = await pool.create(SandboxSpec())
    waiting = asyncio.ensure_future(box.run("sleep 1000", timeout_s=2000))
    await asyncio.sleep(0.2)
    (member,) = pool.registry.members.values()  # type: ignore[attr-defined]
    ray.kill(member.host._link._actor)
    try:
        await asyncio.wait_for(waiting, 60)
        raise AssertionError("a command on a dead host ended well")
    except HostLost as error:
        assert box.state == "dead", error
    async with asyncio.timeout(120):
        while True:
            try:
                again = await pool.create(SandboxSpec())
                break
            except InfraError:
                await asyncio.sleep(1)
    assert (await again.run("echo back")).out == b"back\n"
    await pool.close()
    print("death done")


async def main() -> None:
    for backend in sys.argv[1:]:
        await files_streams_and_errors(backend)
    if "local" in sys.argv:
        await layers_from_actor_to_actor()
    await a_host_that_dies()


if __name__ == "__main__":
    temp = tempfile.mkdtemp(prefix="ef-")  # short: paths of unix sockets hold 107 bytes
    try:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            log_to_driver=False,
            _temp_dir=temp,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
        )
        asyncio.run(main())
    finally:
        ray.shutdown()
        shutil.rmtree(temp, ignore_errors=True)
