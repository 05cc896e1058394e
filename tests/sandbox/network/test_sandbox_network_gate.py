"""A sandbox' policed way out, from inside real sandboxes to servers on this machine's loopback (which only these tests open)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, PackageRule, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What a program inside says to the door: a first line, then it prints the answer's first line, or what came after the tunnel was made.
ASK = """
import socket, sys
door = socket.create_connection(("127.0.0.1", 3128), timeout=10)
door.sendall(sys.argv[1].encode().decode("unicode_escape").encode("latin-1"))
answer = door.recv(65536)
print(answer.split(b"\\r\\n")[0].decode())
if len(sys.argv) > 2:
    door.sendall(sys.argv[2].encode())
    print(door.recv(65536).decode())
"""
HOLD = """
import socket, sys
door = socket.create_connection(("127.0.0.1", 3128), timeout=30)
door.sendall(sys.argv[1].encode().decode("unicode_escape").encode("latin-1"))
door.recv(65536)
open("held", "w").close()
try:
    print("end" if door.recv(1) == b"" else "data")
except OSError as error:
    print("end", type(error).__name__)
"""
FAMILIES = """
import socket
for family, kind in ((40, socket.SOCK_STREAM), (17, socket.SOCK_RAW), (38, socket.SOCK_SEQPACKET)):  # vsock, packet, alg
    try:
        socket.socket(family, kind)
        print(family)
    except OSError:
        print("refused")
"""


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(b"echo " + data)
            await writer.drain()
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[int]:
    """An echo service of the host, reached as localhost."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "egress.jsonl"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["local", "bubblewrap", "podman", "runc"])
async def pool(request: pytest.FixtureRequest, log: Path) -> AsyncIterator[SandboxPool]:
    settings = SandboxSettings(backend=request.param, egress_networks=["127.0.0.0/8", "::1/128"], egress_log=str(log))
    try:
        made = await open_pool(settings)
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


async def born(pool: SandboxPool, *hosts: str, warm_python: bool = True) -> Sandbox:
    spec = SandboxSpec(
        network=Network("allowlist", hosts),
        files={"ask.py": ASK.encode(), "hold.py": HOLD.encode()},
        warm_python=warm_python,
    )
    return await pool.create(spec)


async def ask(box: Sandbox, request: str, *more: str) -> list[str]:
    done = await box.run(["python", "ask.py", request, *more], timeout_s=30, warm=box.spec.warm_python)
    assert done.rc == 0, done.err
    return done.out.decode().splitlines()


def connect(goal: str) -> str:
    return f"CONNECT {goal} HTTP/1.1\\r\\nHost: {goal}\\r\\n\\r\\n"


async def test_a_listed_host_is_reached_and_another_is_not(pool: SandboxPool, port: int, log: Path) -> None:
    """Test 36 of docs/sandbox.md."""
    box = await born(pool, f"localhost:{port}")
    assert await ask(box, connect(f"LOCALHOST:{port}"), "hello") == [
        "HTTP/1.1 200 Connection established",
        "echo hello",
    ]
    for goal in (
        f"127.0.0.1:{port}",
        f"2130706433:{port}",
        f"[::1]:{port}",
        f"localhost.:{port}",
        f"me@localhost:{port}",
        "other.example:443",
    ):
        assert (await ask(box, connect(goal)))[0].split()[1] in ("400", "403"), goal
    await box.kill()
    decisions = box.decisions
    assert [one.allowed for one in decisions] == [True, *[False] * 6] and decisions[0].up_bytes == 5
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["host"] for line in lines if line["sandbox"] == box.id][-7:] == [one.host for one in decisions]


async def test_there_is_no_other_way_out(pool: SandboxPool, port: int) -> None:
    """Test 35 of docs/sandbox.md: no route, no name service, no abstract sockets, no metadata address; with a door as without."""
    name = f"\0etude-egress-{port}"
    with socket.socket(socket.AF_UNIX) as hostly:
        hostly.bind(name)
        hostly.listen()
        code = f"""
import errno, socket
for goal in (("169.254.169.254", 80), ("93.184.216.34", 443)):
    try:
        socket.create_connection(goal, timeout=5)
    except OSError as error:
        print(errno.errorcode[error.errno])
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=5)
except OSError as error:
    print(errno.errorcode[error.errno])
try:
    socket.socket(socket.AF_UNIX).connect({name!r})
except OSError as error:
    print(errno.errorcode[error.errno])
try:
    socket.getaddrinfo("example.org", 443)
except OSError as error:
    print("no name")
print(open("/proc/net/route").read().count("\\n"))
"""
        for network in (Network(), Network("allowlist", (f"localhost:{port}",))):
            box = await pool.create(SandboxSpec(network=network))
            done = await box.run(["python", "-c", code], timeout_s=60, warm=True)
            unreachable, refused = ["ENETUNREACH"] * 2, ["ECONNREFUSED"] * 2
            assert done.out.decode().split("\n")[:-1] == [*unreachable, *refused, "no name", "1"], done.err
            await box.kill()


async def test_odd_socket_families_can_not_be_created_under_an_allow_list(pool: SandboxPool) -> None:
    """Test 34 of docs/sandbox.md: only that creating them fails."""
    for network in (Network(), Network("allowlist", ("example.org",))):
        box = await pool.create(SandboxSpec(network=network))
        assert (await box.run(["python", "-c", FAMILIES], timeout_s=30, warm=True)).out == b"refused\n" * 3
        await box.kill()


async def test_a_narrower_policy_cuts_what_is_established(pool: SandboxPool, port: int) -> None:
    """Test 37 of docs/sandbox.md."""
    box = await born(pool, f"localhost:{port}")
    held = asyncio.ensure_future(box.run(["python", "hold.py", connect(f"localhost:{port}")], timeout_s=60, warm=True))
    async with asyncio.timeout(30):
        while not any(entry.path == "held" for entry in await box.list()):
            await asyncio.sleep(0.02)
    await box.set_network(Network())
    assert (await asyncio.wait_for(held, 30)).out.startswith(b"end")
    assert (await ask(box, connect(f"localhost:{port}")))[0].split()[1] == "403"
    assert box.spec.network == Network()  # what a fork would be born with
    await box.set_network(Network("allowlist", (f"localhost:{port}",)))
    assert (await ask(box, connect(f"localhost:{port}"), "again"))[1] == "echo again"
    assert box.decisions[0].reason.startswith("cut")
    with pytest.raises(UserError):
        await box.set_network(Network("allowlist", ("127.0.0.1",)))
    with pytest.raises(Unsupported):
        await box.set_network(Network("host"))
    await box.kill()


async def test_a_sandbox_born_without_a_door_gets_none_later(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec())
    await box.set_network(Network())
    with pytest.raises(Unsupported, match="born with network 'none'"):
        await box.set_network(Network("allowlist", ("example.org",)))
    assert box.decisions == []
    await box.kill()


async def test_death_takes_the_door_along(pool: SandboxPool, port: int) -> None:
    box = await born(pool, f"localhost:{port}")
    held = asyncio.ensure_future(box.run(["python", "hold.py", connect(f"localhost:{port}")], timeout_s=60, warm=True))
    async with asyncio.timeout(30):
        while not any(entry.path == "held" for entry in await box.list()):
            await asyncio.sleep(0.02)
    await box.kill()
    with suppress(Exception):
        await held
    assert [one.reason[:3] for one in box.decisions] == ["cut"]


async def test_a_bad_allow_list_is_refused_before_anything_is_made(pool: SandboxPool) -> None:
    created = pool.stats().created
    bad = [
        Network("allowlist", ("10.0.0.1",)),
        Network("allowlist", ("http://example.org",)),
        Network("none", ("example.org",)),
        Network("allowlist", packages=(PackageRule("pip", ("a b",)),)),
        Network("allowlist", packages=(PackageRule("pip", ("a",), "soon"),)),
        Network("allowlist", packages=(PackageRule("pip", ("a",)), PackageRule("pip", ("b",)))),
    ]
    for network in bad:
        with pytest.raises(UserError):
            await pool.create(SandboxSpec(network=network))
    with pytest.raises(Unsupported):
        await pool.create(SandboxSpec(network=Network("host")))
    assert pool.stats().created == created


async def test_without_a_warm_interpreter_the_door_is_the_same(pool: SandboxPool, port: int) -> None:
    box = await born(pool, f"localhost:{port}", warm_python=False)
    assert (await ask(box, connect(f"localhost:{port}"), "cold"))[1] == "echo cold"
    await box.kill()


async def test_a_private_network_stays_closed_unless_the_settings_open_it(port: int) -> None:
    """Test 36 of docs/sandbox.md: host services."""
    pool = await open_pool(SandboxSettings(backend="local"))
    try:
        box = await born(pool, f"localhost:{port}")
        assert (await ask(box, connect(f"localhost:{port}")))[0].split()[1] == "403"
        assert "not a public address" in box.decisions[0].reason
    except Unsupported as error:
        pytest.skip(str(error))
    finally:
        await pool.close()


async def test_bad_settings_are_named() -> None:
    for settings in (SandboxSettings(egress_networks=["10.1"]), SandboxSettings(egress_networks=["host.example"])):
        with pytest.raises(UserError, match="egress_networks"):
            await open_pool(settings)


async def test_a_back_end_without_a_loopback_of_its_own_refuses() -> None:
    try:
        pool = await open_pool(SandboxSettings(backend="process"))
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        assert not pool.probe().egress
        with pytest.raises(Unsupported, match="allowlist.*process"):
            await pool.create(SandboxSpec(network=Network("allowlist", ("example.org",))))
    finally:
        await pool.close()


async def test_around_a_folder_of_the_host_the_way_out_is_the_same_door(tmp_path: Path, port: int) -> None:
    """Tests 35 and 36 of docs/sandbox.md, where the rest of the host is in sight."""
    try:
        pool = await open_pool(SandboxSettings(backend="bubblewrap", egress_networks=["127.0.0.0/8", "::1/128"]))
    except Unsupported as error:
        pytest.skip(str(error))
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    (folder / "ask.py").write_text(ASK)
    try:
        network = Network("allowlist", (f"localhost:{port}",))
        box = await pool.create(
            SandboxSpec(workdir=str(folder), folder=str(folder), network=network, memory_mb=2048, pids=256)
        )
        assert (await ask(box, connect(f"localhost:{port}"), "hello"))[1] == "echo hello"
        assert (await ask(box, connect("other.example:443")))[0].split()[1] == "403"
        direct = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
        assert b"ConnectionRefusedError" in (await box.run(["python", "-c", direct], timeout_s=30, warm=True)).err
    finally:
        await pool.close()
