"""Layers from the hosts that have them to the one that lacks them: only those, each once, checked against their digests on arrival."""

from __future__ import annotations

import asyncio
import itertools
import random

from etude.sandbox.errors import InfraError, LayerCorrupt, SandboxNotFound, Unsupported
from etude.sandbox.fleet.hosts import HostRegistry, Member
from etude.sandbox.fleet.single_flight import SingleFlight
from etude.sandbox.operation_scope import OperationScope

Chain = tuple[tuple[str, ...], bytes]  # layers, topmost first, and the record of them (HostLayers.chain)
_AT_ONCE = 8  # layers on their way, each with a piece or two in this process' memory


class Shipping:
    def __init__(self, registry: HostRegistry, rng: random.Random) -> None:
        self._roster, self._rng = registry, rng
        self._chains: dict[str, Chain] = {}
        self._on_way: SingleFlight[None] = SingleFlight(stale=lambda result: True)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._parcels = itertools.count(1)
        self.shipped = 0

    def remember(self, called: str, chain: Chain, host: str) -> None:
        self._chains[called] = chain
        for layer in chain[0]:
            self._roster.placement.holds(host, layer)

    async def chain(self, called: str) -> Chain:
        """Of a snapshot or an image, topmost first; the hosts are asked where it was not made through this fleet."""
        if called in self._chains:
            return self._chains[called]
        members = [one for one in self._roster.members.values() if self._roster.placement.takes(one.host.name)]
        answers = await asyncio.gather(*(one.host.chain(called) for one in members), return_exceptions=True)
        for member, answer in zip(members, answers, strict=True):
            if isinstance(answer, tuple):
                self.remember(called, answer, member.host.name)
                return answer
        refused = [answer for answer in answers if isinstance(answer, Unsupported | LayerCorrupt)]
        raise refused[0] if refused else SandboxNotFound(f"{called!r}: no host has a snapshot or image of that name")

    async def bring(self, member: Member, image: str, chain: Chain) -> None:
        """The host can restore it afterwards, and knows it by its name if it is an image."""
        missing = await member.host.missing(chain[0])
        await asyncio.gather(*(self._once(member, digest) for digest in missing))
        await member.host.enter(chain[1], image)

    async def _once(self, member: Member, digest: str) -> None:
        await self._on_way.once(f"{member.host.name}/{digest}", lambda: self._ship(member, digest))

    async def _ship(self, member: Member, digest: str) -> None:
        holders = [name for name in self._roster.placement.holders(digest) if name != member.host.name]
        self._rng.shuffle(holders)
        reasons: list[str] = []
        operations = member.operations  # cut with the host as it is now
        for name in holders:
            try:
                async with self._room:
                    await self._carry(self._roster.members[name], member, operations, digest)
            except InfraError as error:  # a corrupt copy, a host lost meanwhile: the next one may have it whole
                reasons.append(f"{name}: {error}")
                continue
            self._roster.placement.holds(member.host.name, digest)
            self.shipped += 1
            return
        raise SandboxNotFound(
            f"layer {digest[:12]}: no living host gave it whole ({'; '.join(reasons) or 'none has it'})"
        )

    async def _carry(self, source: Member, target: Member, operations: OperationScope, digest: str) -> None:
        """Piece by piece; nothing of it is entered before the last one has come and all of it has that digest. Waits for no lost host."""
        parcel, start, more, theirs = f"{self._roster.owner}-{next(self._parcels)}", 0, True, source.operations
        while more:
            piece, more = await theirs.hold(source.host.export_layer(digest, start))
            await operations.hold(target.host.import_layer(digest, parcel, start, piece, more))
            start += len(piece)
