"""Two hosts of this machine's own sandboxes, each with a store of its own: what one lacks comes from the other, checked, held, in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from etude.sandbox.errors import InfraError, SandboxError, Unsupported
from etude.sandbox.fleet.demand import HostFacts
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.host import LocalHost
from etude.sandbox.fleet.placement import Placement
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.wire.remote import RemoteHost
from etude.sandbox.fleet.wire.server import HostServer, LoopLink
from etude.sandbox.layers.collect import collect
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox
from etude.sandbox.services import presets
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.snapshots import images
from etude.sandbox.snapshots.cache import open_store
from etude.sandbox.spec import WORKDIR, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")
PIECE = 16 << 10
MOST = 2  # sandboxes of one host


@dataclass
class Pair:
    """`fleet` over two pools, by their hosts' names; `pieces`: sizes of what was exported."""

    folders: dict[str, Path]
    pools: dict[str, LocalPool] = field(default_factory=dict)
    fleet: Fleet = field(init=False)
    pieces: list[int] = field(default_factory=list)

    async def open(self) -> None:
        hosts: list[RemoteHost] = []
        for name, folder in self.folders.items():
            pool = await open_pool(SandboxSettings(backend="local", layers=str(folder)))
            assert isinstance(pool, LocalPool)
            self.pools[name] = pool
            facts = HostFacts(1 << 20, 64, MOST, 8, 1000.0, pool.probe())
            hosts.append(RemoteHost(name, LoopLink(HostServer(LocalHost(name, pool, facts, lambda: (0.0, 0.0))))))
        self.fleet = await Fleet.open(hosts, FleetSettings(attempts=1, patience_s=2.0), placement=Placement(0), seed=0)

    def other(self, box: Sandbox) -> str:
        (name,) = self.folders.keys() - {_home(box)}
        return name


def _home(box: Sandbox) -> str:
    return box.id.split("/")[0]


def _whole(found: list[Sandbox | SandboxError]) -> list[Sandbox]:
    assert not [one for one in found if isinstance(one, SandboxError)], found
    return [one for one in found if not isinstance(one, SandboxError)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    made = Pair({name: tmp_path_factory.mktemp(name) for name in ("h0", "h1")})
    try:
        await made.open()
    except Unsupported as error:
        pytest.skip(str(error))
    for pool in made.pools.values():
        if pool.host_layers is None:
            pytest.skip(f"no layers here: {pool.probe().reason}")
        pool.host_layers.piece_bytes = PIECE
        _note(pool.host_layers, made.pieces)
    yield made
    await made.fleet.close()
    for pool in made.pools.values():
        await pool.close()


def _note(host_layers: Any, pieces: list[int]) -> None:
    export = host_layers.export_layer

    async def noted(digest: str, start: int) -> tuple[bytes, bool]:
        piece, more = await export(digest, start)
        pieces.append(len(piece))
        return piece, more

    host_layers.export_layer = noted


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def emptied(pair: Pair) -> AsyncIterator[None]:
    yield
    for box in pair.fleet.list():
        await box.kill()


@pytest.fixture
def stores(pair: Pair) -> Iterator[list[LayerStore]]:
    opened = [open_store(str(folder)) for folder in pair.folders.values()]
    yield opened
    for store in opened:
        store.close()


async def _far(pair: Pair, box: Sandbox, ref: Any) -> Sandbox:
    """One restored where `box` isn't: its own host is filled before."""
    fill = [await pair.fleet.create(SandboxSpec()) for _ in range(2 * MOST - len(pair.fleet.list()))]
    for one in fill:
        if _home(one) != _home(box):
            await one.kill()
    (found,) = _whole(await pair.fleet.restore(ref, SandboxSpec()))
    assert _home(found) != _home(box)
    return found


async def test_a_snapshot_is_the_same_on_another_host_and_is_shipped_once(pair: Pair) -> None:
    """Test 19 of docs/sandbox.md, across hosts: only what is missing travels, in pieces, under the same digest."""
    box = await pair.fleet.create(SandboxSpec(files={"a": b"1", "old": b"x", "d/old": b"y"}))
    big = bytes(range(256)) * 1000
    await box.write("big", big)
    low = await box.snapshot()
    done = await box.run(
        "rm old; rm -r d; mkdir d; echo 2 >d/new; ln -s a link; chmod 750 a; printf x >$(printf 'u\\377')"
    )
    assert done.rc == 0, done.err
    ref = await box.snapshot()
    shipped = pair.fleet.shipping.shipped
    far = await _far(pair, box, ref)
    names = sorted((entry.path, entry.kind, entry.mode) for entry in await far.list(recursive=True))
    assert names == sorted((entry.path, entry.kind, entry.mode) for entry in await box.list(recursive=True))
    assert await far.read("big") == big and await far.read("d/new") == b"2\n" and await far.diff(ref) == []
    assert {one.path for one in await far.diff(low)} == {one.path for one in await box.diff(low)}
    assert pair.fleet.shipping.shipped > shipped
    assert max(pair.pieces) == PIECE and len(pair.pieces) > len(big) // PIECE
    shipped = pair.fleet.shipping.shipped
    await far.kill()
    again = await _far(pair, box, ref)
    assert await again.read("big") == big and pair.fleet.shipping.shipped == shipped


async def test_a_fork_goes_on_where_there_is_room(pair: Pair) -> None:
    box = await pair.fleet.create(SandboxSpec(files={"a": b"1"}))
    await box.write("a", b"forked")
    children = _whole(await box.fork(2 * MOST - 1))
    assert sorted(map(_home, children)) == sorted([_home(box)] * (MOST - 1) + [pair.other(box)] * MOST)
    assert [await child.read("a") for child in children] == [b"forked"] * len(children)


async def test_what_is_on_its_way_is_never_collected(pair: Pair, stores: list[LayerStore]) -> None:
    """Test 22 of docs/sandbox.md, across hosts: both stores are collected, without any patience, after each piece."""
    box = await pair.fleet.create(SandboxSpec())
    await box.write("big", bytes(range(256)) * 500)
    ref = await box.snapshot()
    host_layers: Any = pair.pools[_home(box)].host_layers
    export, collections = host_layers.export_layer, []

    async def collecting(digest: str, start: int) -> tuple[bytes, bool]:
        answer = await export(digest, start)
        collections.append([collect(store, patience_s=0.0) for store in stores])
        return answer

    host_layers.export_layer = collecting
    try:
        far = await _far(pair, box, ref)
    finally:
        host_layers.export_layer = export
    assert len(collections) > 2 and await far.read("big") == bytes(range(256)) * 500


async def test_a_layer_that_is_not_what_its_digest_says_is_not_entered(pair: Pair, stores: list[LayerStore]) -> None:
    """Test 21 of docs/sandbox.md, across hosts."""
    box = await pair.fleet.create(SandboxSpec())
    await box.write("a", b"right")
    ref = await box.snapshot()
    host_layers: Any = pair.pools[_home(box)].host_layers
    export = host_layers.export_layer
    layers, _ = await host_layers.chain(ref.digest)

    async def spoilt(digest: str, start: int) -> tuple[bytes, bool]:
        piece, more = await export(digest, start)
        return piece.replace(b"right", b"wrong"), more

    there = pair.pools[pair.other(box)].host_layers
    assert there is not None
    for broken in (spoilt, _cut(export)):
        host_layers.export_layer = broken
        try:
            with pytest.raises(AssertionError, match="arrived"):
                await _far(pair, box, ref)
        finally:
            host_layers.export_layer = export
        assert await there.missing(layers) == [layers[0]]
    far = await _far(pair, box, ref)
    assert await far.read("a") == b"right"


def _cut(export: Any) -> Any:
    async def cut(digest: str, start: int) -> tuple[bytes, bool]:
        piece, _ = await export(digest, start)
        return piece[:700], False

    return cut


async def test_an_image_is_found_by_its_name_wherever_it_is(
    pair: Pair, stores: list[LayerStore], tmp_path: Path
) -> None:
    (tmp_path / "root/work").mkdir(parents=True)
    (tmp_path / f"root{WORKDIR}/os").write_text("tiny")
    images.add(stores[0], tmp_path / "root", "tiny:1").release()
    spec = SandboxSpec(image="tiny:1", warm_python=False)
    boxes = [await pair.fleet.create(spec) for _ in range(2 * MOST)]
    assert {_home(box) for box in boxes} == {"h0", "h1"}
    assert [await box.read("os") for box in boxes] == [b"tiny"] * len(boxes)
    assert stores[1].resolve("tiny:1") == stores[0].resolve("tiny:1")


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{}",
        b'{"layers":["../../x"],"base":0,"env":{},"workdir":""}',
        b'{"layers":[],"base":3,"env":{},"workdir":""}',
    ],
)
async def test_a_record_that_is_none_is_refused(pair: Pair, record: bytes) -> None:
    host_layers = pair.pools["h0"].host_layers
    assert host_layers is not None
    with pytest.raises(InfraError, match="record"):
        await host_layers.enter(record, "")
    assert await host_layers.missing(("../../x", "f" * 64)) == ["../../x", "f" * 64]
    for wrong in ("../../x", "f" * 64):
        with pytest.raises(InfraError, match="not on this host"):
            await host_layers.export_layer(wrong, 0)


async def test_services_are_listed_and_connections_refused_over_a_wire(pair: Pair) -> None:
    box = await pair.fleet.create(SandboxSpec(services=(presets.log_service(),)))
    assert [(one.name, one.healthy) for one in await box.services()] == [("log_service", True)]
    with pytest.raises(Unsupported, match="a socket can't leave its machine"):
        await box.connect(presets.LOGS_PORT)


async def test_a_closed_pool_ships_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    try:
        pool = await open_pool(SandboxSettings(backend="local", layers=str(tmp_path)))
    except Unsupported as error:
        pytest.skip(str(error))
    assert isinstance(pool, LocalPool)
    host_layers = pool.host_layers
    box = await pool.create(SandboxSpec())
    await box.write("a", b"1")
    if host_layers is None:
        pytest.skip(f"no layers here: {pool.probe().reason}")
    layers, _ = await host_layers.chain((await box.snapshot("it")).digest)
    piece, _ = await host_layers.export_layer(layers[0], 0)
    await host_layers.import_layer("f" * 64, "parcel", 0, piece, True)
    await pool.close()
    for refused in (
        host_layers.chain("it"),
        host_layers.missing(layers),
        host_layers.export_layer(layers[0], 0),
        host_layers.held(),
    ):
        with pytest.raises(InfraError, match="closed"):
            await refused
    assert not list((tmp_path / "live").iterdir())
