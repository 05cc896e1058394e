"""A paused sandbox, and connections to what listens inside."""

from __future__ import annotations

import asyncio

import pytest
from makers import MadePool

from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.protocol import Process, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 4321))
print("up", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"hello " + client.recv(100))
    client.close()
"""


async def test_a_paused_sandbox_changes_nothing_and_goes_on_where_it_was(box: Sandbox) -> None:
    process = await box.exec("i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.01; done")
    while (await box.list())[0].path != "count":
        await asyncio.sleep(0.02)
    await box.pause()
    assert box.state == "paused"
    first = await box.read("count")
    await asyncio.sleep(0.1)
    assert await box.read("count") == first
    for change in (box.run(["true"]), box.write("x", b""), box.remove("count"), box.exec(["true"])):
        with pytest.raises(UserError, match="paused"):
            await change
    await box.pause()
    await box.resume()
    await box.resume()
    assert box.state == "running" and (await box.run("sleep 0.2; cat count")).out != first
    await process.signal(9)
    assert (await process.wait()).signal == 9


async def test_what_was_stopped_before_a_pause_stays_stopped(box: Sandbox) -> None:
    process = await box.exec("echo $$; kill -STOP $$; echo woken")
    async for chunk in process.stream():
        pid = int(chunk.data)
        break
    for _ in range(100):
        state = (await box.run(["cat", f"/proc/{pid}/stat"])).out.split()[2]
        if state == b"T":
            break
    await box.pause()
    await box.resume()
    assert (await box.run(["cat", f"/proc/{pid}/stat"])).out.split()[2] == b"T"
    await process.signal(18)
    assert (await process.wait()).out == b"woken\n"


async def test_a_time_out_ends_a_command_that_hangs(box: Sandbox) -> None:
    process = await box.exec("sleep 1000", timeout_s=0.3)
    await box.pause()
    assert (await process.wait()).timed_out
    await box.resume()
    assert (await box.run("echo here")).out == b"here\n"


async def _serving(box: Sandbox) -> Process:
    await box.write("server.py", SERVER.encode())
    process = await box.exec(["python", "server.py"])
    async for chunk in process.stream():
        assert chunk.data == b"up\n"
        break
    return process


async def test_a_port_inside_can_be_reached_from_here(pool: MadePool, box: Sandbox) -> None:
    if not pool.probe().egress:
        pytest.skip(f"Capabilities.egress is False: {pool.maker.release()} hands no socket of the inside out")
    process = await _serving(box)
    for word in (b"one", b"two"):
        made = await box.connect(4321)
        made.settimeout(10)
        made.sendall(word)
        assert await asyncio.to_thread(made.recv, 100) == b"hello " + word
        made.close()
    await process.signal(9)


async def test_where_no_socket_can_be_handed_out_connect_is_refused(pool: MadePool, box: Sandbox) -> None:
    if pool.probe().egress:
        pytest.skip("Capabilities.egress is True: it can be handed out")
    process = await _serving(box)
    with pytest.raises(Unsupported, match="no socket"):
        await box.connect(4321)
    await process.signal(9)
    assert (await process.wait()).signal == 9 and (await box.run("echo here")).out == b"here\n"


async def test_a_port_no_one_listens_on_is_a_user_error(box: Sandbox) -> None:
    for port in (4999, 0, 70_000):
        with pytest.raises((UserError, Unsupported)):
            await box.connect(port)
    assert (await box.run("echo here")).out == b"here\n"
