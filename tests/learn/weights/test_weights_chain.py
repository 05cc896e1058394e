"""Promise 7, the sender: its base advances only after every live receiver acknowledged; by example and by simulation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.weights.chain import MAX_PENDING, Chain
from etude.learn.weights.path import Edge, cheapest, needed


def publish(chain: Chain, version: int) -> int | None:
    plan = chain.plan(version)
    chain.on_published(plan)
    return plan.base


def test_first_version_is_an_anchor_without_delta() -> None:
    plan = Chain(anchor_every=10).plan(0)
    assert plan.base is None and plan.anchor


def test_base_waits_for_every_live_receiver() -> None:
    chain = Chain(anchor_every=10)
    for receiver in ("a", "b"):
        chain.join(receiver)
    publish(chain, 0)
    for receiver in ("a", "b"):
        chain.acknowledge(receiver, 0)
    assert publish(chain, 1) == 0
    chain.acknowledge("a", 1)
    assert publish(chain, 2) == 0  # b has not acknowledged 1
    chain.acknowledge("b", 1)
    assert publish(chain, 3) == 1
    chain.acknowledge("a", 3)
    chain.leave("b")
    assert publish(chain, 4) == 3  # no one waits for the one that left


def test_doubled_and_late_acknowledgements_change_nothing() -> None:
    chain = Chain(anchor_every=10)
    chain.join("a")
    for version in range(3):
        publish(chain, version)
        chain.acknowledge("a", version)
    chain.acknowledge("a", 0)
    chain.acknowledge("a", 2)
    assert chain.base == 2 and chain.receivers == {"a": 2}


def test_restarted_receiver_holds_the_base_back_until_it_acknowledges() -> None:
    chain = Chain(anchor_every=10)
    chain.join("a")
    publish(chain, 0)
    chain.acknowledge("a", 0)
    chain.join("a")
    publish(chain, 1)
    assert chain.base == 0
    chain.acknowledge("a", 1)
    assert chain.base == 1


def test_acknowledging_what_was_never_published_is_an_error() -> None:
    chain = Chain(anchor_every=10)
    chain.join("a")
    with pytest.raises(ValueError, match="newest published is None"):
        chain.acknowledge("a", 0)


def test_versions_only_grow() -> None:
    chain = Chain(anchor_every=10)
    publish(chain, 4)
    with pytest.raises(ValueError, match="version 4 comes after 4"):
        chain.plan(4)


def test_without_receivers_each_delta_starts_from_the_last_version() -> None:
    chain = Chain(anchor_every=3)
    plans = []
    for version in range(8):
        plans.append(chain.plan(version))
        chain.on_published(plans[-1])
    assert [plan.base for plan in plans] == [None, 0, 1, 2, 3, 4, 5, 6]
    assert [plan.version for plan in plans if plan.anchor] == [0, 3, 6]


class FakeWorld:
    """A sender, receivers that lose messages and restart, and a store of edges: versions instead of weights."""

    def __init__(self, seed: int, anchor_every: int, keep_anchors: int) -> None:
        self.random = random.Random(seed)
        self.chain = Chain(anchor_every)
        self.keep_anchors = keep_anchors
        self.edges: list[Edge] = []
        self.holds: dict[str, int | None] = {}
        self.mail: list[tuple[str, int]] = []  # acknowledgements under way
        self.confirmed: dict[str, int] = {}  # since it joined, by what the sender received
        self.names = 0
        self.version = -1

    def publish(self) -> None:
        self.version += self.random.choice([1, 1, 1, 3])
        before = self.chain.base
        plan = self.chain.plan(self.version)
        assert plan.base == before and (plan.base is None or plan.base in self.chain.held)
        if plan.base is not None:
            self.edges.append(Edge(plan.version, plan.base, self.random.randint(1, 9)))
        if plan.anchor:
            self.edges.append(Edge(plan.version, None, 10))
        held = {*self.chain.held, plan.version}
        self.edges = needed(self.edges, self.keep_anchors, held)
        self.chain.on_published(plan)

    def join(self) -> None:
        self.names += 1
        name = f"r{self.names}"
        self.holds[name] = None
        self.chain.join(name)

    def restart(self) -> None:
        if self.holds:
            name = self.random.choice(list(self.holds))
            self.holds[name] = None
            self.confirmed.pop(name, None)
            self.chain.join(name)

    def leave(self) -> None:
        if self.holds:
            name = self.random.choice(list(self.holds))
            del self.holds[name]
            self.confirmed.pop(name, None)
            self.chain.leave(name)

    def receive(self) -> None:
        """A receiver walks to the newest version, which must be possible from whatever it holds, and acknowledges."""
        if self.holds and self.version >= 0:
            name = self.random.choice(list(self.holds))
            walk = cheapest(self.edges, self.holds[name], self.version)
            assert walk is not None, f"{name} at {self.holds[name]} cannot reach {self.version}: {self.edges}"
            at = self.holds[name]
            for step in walk:
                assert step.edge.base is None or at == (step.edge.version if step.rewind else step.edge.base)
                at = step.reaches
            assert at in (self.version, self.holds[name])
            self.holds[name] = self.version
            self.mail += [(name, self.version)] * self.random.choice([0, 1, 1, 2])  # lost, sent, doubled

    def deliver(self) -> None:
        if self.mail:
            name, version = self.mail.pop(self.random.randrange(len(self.mail)))  # in any order
            self.chain.acknowledge(name, version)
            if name in self.holds:
                self.confirmed[name] = max(version, self.confirmed.get(name, -1))

    def check(self, base_before: int | None) -> None:
        chain = self.chain
        assert len(chain.held) <= 1 + MAX_PENDING
        assert chain.base is None or base_before is None or chain.base >= base_before
        if chain.base != base_before and base_before is not None:
            assert all(self.confirmed.get(name, -1) >= (chain.base or 0) for name in self.holds), (
                "advanced unacknowledged"
            )


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 3))
def test_base_never_runs_ahead_and_everyone_can_always_catch_up(seed: int, anchor_every: int, keep: int) -> None:
    world = FakeWorld(seed, anchor_every, keep)
    acts = [
        world.publish,
        world.receive,
        world.receive,
        world.deliver,
        world.deliver,
        world.join,
        world.restart,
        world.leave,
    ]
    for _ in range(120):
        before = world.chain.base
        world.random.choice(acts)()
        world.check(before)
    world.publish()
    assert cheapest(world.edges, None, world.version) is not None, "a newcomer starts from an anchor"
    anchors = [edge for edge in world.edges if edge.base is None]
    assert 1 <= len(anchors) <= keep


def test_retention_drops_what_no_walk_needs() -> None:
    edges = [Edge(0, None, 10)]
    for version in range(1, 9):
        edges.append(Edge(version, version - 1, 1))
        if version % 4 == 0:
            edges.append(Edge(version, None, 10))
    names = [edge.name for edge in needed(edges, 1, {8})]
    assert names == ["anchor-8"]
    names = [edge.name for edge in needed(edges, 2, {8})]
    assert names == ["anchor-4", "delta-5", "delta-6", "delta-7", "delta-8", "anchor-8"]


def test_a_walk_may_step_back_to_the_senders_base() -> None:
    edges = [Edge(0, None, 10), Edge(1, 0, 2), Edge(2, 0, 3)]
    walk = cheapest(edges, 1, 2)
    assert walk is not None
    assert [(step.edge.name, step.rewind) for step in walk] == [("delta-1", True), ("delta-2", False)]


def test_the_anchor_is_taken_when_it_is_cheaper_than_the_deltas() -> None:
    edges = [Edge(0, None, 10), *(Edge(v, v - 1, 4) for v in range(1, 6)), Edge(5, None, 10)]
    assert [step.edge.name for step in cheapest(edges, 0, 5) or []] == ["anchor-5"]
    assert [step.edge.name for step in cheapest(edges, 4, 5) or []] == ["delta-5"]
    assert cheapest(edges[1:3], None, 2) is None
