"""What a sandbox reaches: nothing but its own loopback, whatever it tries, with a policed door as without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from etude.sandbox.inside.cell import DOOR
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import Network, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

Python = Callable[[str], Awaitable[str]]

FAMILIES = """
import socket
for family, kind, protocol in [(40, 1, 0), (17, 3, 0), (38, 5, 0), (16, 3, 4), (16, 3, 9), (31, 3, 0), (29, 3, 1), (21, 5, 0), (44, 3, 0)]:
    try:
        socket.socket(family, kind, protocol).close()
        print("created", family)
    except OSError as error:
        print(error.errno, end=" ")
"""


async def test_socket_families_beyond_the_usual_cannot_be_created(python: Python) -> None:
    """Test 34 of docs/sandbox.md: AF_VSOCK, AF_PACKET, AF_ALG and six more. None is ever connected."""
    usual = "for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6): socket.socket(family, socket.SOCK_STREAM).close()"
    assert (await python(f"{FAMILIES}\n{usual}")).split() == ["1"] * 9


async def test_a_policed_door_opens_no_other_family(pool: SandboxPool, kind: str) -> None:
    """Test 34 of docs/sandbox.md: with network allowlist as well."""
    if not isinstance(pool, LocalPool) or kind.startswith("bubblewrap"):
        pytest.skip("bubblewrap has no allowlist")
    box = await pool._creator.make(SandboxSpec(network=Network("allowlist"), warm_python=not kind.endswith("native")))
    assert (await box.run(["python3", "-c", FAMILIES])).out.split() == [b"1"] * 9
    await box.kill()


async def test_there_is_no_network_but_the_own_loopback(box: Sandbox, python: Python) -> None:
    """Test 35 of docs/sandbox.md: no route."""
    shown = (await box.run("tail -n +3 /proc/net/dev")).out.decode().splitlines()
    assert [line.split(":")[0].strip() for line in shown] == ["lo"]
    assert (await box.run("tail -n +2 /proc/net/route")).out == b""
    code = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hi")).start()
print(socket.create_connection(server.getsockname()).recv(2).decode())
"""
    assert await python(code) == "hi"


async def test_no_name_is_resolved_and_no_address_outside_reached(python: Python) -> None:
    """Test 35 of docs/sandbox.md: the address at which clouds tell their secrets is one of them; all stay inside our own namespace."""
    code = f"""
import socket
for address in ("169.254.169.254", "192.0.2.1", "10.0.0.1", "fd00::1"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.settimeout(2)
    print(one.connect_ex((address, 80)), end=" ")
print(socket.socket().connect_ex({DOOR!r}), end=" ")
try:
    print(socket.getaddrinfo("example.org", 80))
except OSError as error:
    print(type(error).__name__)
"""
    unreachable = {"101", "99"}
    words = (await python(code)).split()
    assert set(words[:4]) <= unreachable and words[4:] == ["111", "gaierror"]


@pytest.mark.usefixtures("own_root")
async def test_abstract_sockets_and_shared_memory_of_the_host_are_out_of_reach(box: Sandbox) -> None:
    """Test 35 of docs/sandbox.md."""
    sockets = [line.split() for line in (await box.run("cat /proc/net/unix")).out.splitlines()[1:]]
    # A socket with a name has it in the eighth column. The runner and the warm interpreter speak over a nameless pair.
    assert not [line for line in sockets if len(line) > 7] and len(sockets) <= 2 * box.spec.warm_python
    assert (await box.run("ls /dev/shm; cat /proc/sysvipc/shm | tail -n +2")).out == b""
