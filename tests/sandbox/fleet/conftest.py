"""A small fleet of fake hosts behind wires that copy, lose and break on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from etude.sandbox.fake.faults import FaultPlan
from etude.sandbox.fake.pool import Costs, FakePool
from etude.sandbox.fleet.demand import HostFacts
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.host import LocalHost
from etude.sandbox.fleet.placement import Placement
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.wire.remote import RemoteHost
from etude.sandbox.fleet.wire.server import HostServer, LoopLink

COSTS = Costs(create_s=0.01, command_s=0.002, kill_s=0.001)


@dataclass
class Bench:
    """`fleet` over the fake pools of `pools`, each by way of its link in `links`."""

    pools: dict[str, FakePool] = field(default_factory=dict)
    links: dict[str, LoopLink] = field(default_factory=dict)
    fleet: Fleet = field(init=False)

    async def open(
        self, hosts: int = 3, max_live: int = 100, plans: Mapping[int, FaultPlan] | None = None, **settings: object
    ) -> Fleet:
        for number in range(hosts):
            name = f"h{number}"
            plan = (plans or {}).get(number, FaultPlan())
            pool = FakePool(COSTS, plan, seed=number, max_live=max_live, name=name)
            facts = HostFacts(1 << 20, 64, max_live, 64, 1000.0, pool.probe())
            host = LocalHost(name, pool, facts, read_load=lambda: (0.0, 0.0))
            self.pools[name], self.links[name] = pool, LoopLink(HostServer(host))
        hosts_seen = [RemoteHost(name, link) for name, link in self.links.items()]
        chosen = FleetSettings.model_validate(settings)
        self.fleet = await Fleet.open(hosts_seen, chosen, placement=Placement(0), owner="me", seed=0)
        return self.fleet

    def live(self) -> dict[str, int]:
        return {name: pool.stats().live for name, pool in self.pools.items()}


@pytest.fixture
def bench() -> Bench:
    return Bench()
