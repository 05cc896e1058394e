"""Publishing in the background: the trainer waits for a copy and no longer, order and promises stay, and failures surface."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
import torch

from etude.learn.weights import inspect
from etude.learn.weights.errors import PublishFailed
from etude.learn.weights.folder import FolderBucket
from etude.learn.weights.publisher import BackgroundPublisher, Publication, Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore


def state(version: int) -> dict[str, torch.Tensor]:
    weights = torch.arange(3000.0).bfloat16()
    weights[version::97] += 1000
    return {"w": weights, "b": torch.full((5,), float(version))}


class GatedBucket(FolderBucket):
    """A folder whose uploads wait for a gate, or fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Callable[[str], None] = lambda key: None

    def put(self, key: str, data: bytes) -> None:
        assert self.gate.wait(20)
        self.fault(key)
        super().put(key, data)


@pytest.fixture
def bucket(tmp_path: Path) -> GatedBucket:
    return GatedBucket(tmp_path / "weights")


def broken(key: str) -> None:
    raise OSError(28, f"No space left for {key}")


def test_publish_returns_before_anything_is_uploaded_and_what_was_copied_is_what_arrives(bucket: GatedBucket) -> None:
    store = WeightStore(bucket)
    publisher, trained = BackgroundPublisher(Publisher(store)), state(0)
    bucket.gate.clear()
    future = publisher.publish(trained, 0)
    assert not future.done() and store.index().newest is None
    trained["w"] += 1  # the trainer goes on
    bucket.gate.set()
    assert future.result(20).digest == state_digest(state(0))
    publisher.close()
    assert state_digest(Receiver(store).catch_up().state) == state_digest(state(0))


def test_order_is_kept_and_each_version_is_announced_once_it_can_be_fetched(bucket: GatedBucket) -> None:
    store, announced = WeightStore(bucket), []

    def announce(published: Publication) -> None:
        announced.append((published.version, Receiver(store).catch_up(goal=published.version).version))

    publisher = BackgroundPublisher(Publisher(store, anchor_every=3), announce)
    for version in range(6):
        publisher.publish(state(version), version)
    publisher.close()
    publisher.close()
    assert announced == [(version, version) for version in range(6)] and inspect.verify(store)["whole"]


def test_memory_is_bounded_a_third_publication_waits_for_the_first(bucket: GatedBucket) -> None:
    publisher = BackgroundPublisher(Publisher(WeightStore(bucket)))
    bucket.gate.clear()
    for version in range(2):
        publisher.publish(state(version), version)
    third = threading.Thread(target=publisher.publish, args=(state(2), 2))
    third.start()
    third.join(0.2)
    assert third.is_alive()
    bucket.gate.set()
    third.join(20)
    publisher.close()
    assert WeightStore(bucket).index().newest == 2


def test_a_failure_surfaces_at_the_next_call_and_what_waited_behind_it_is_not_published(bucket: GatedBucket) -> None:
    store = WeightStore(bucket)
    publisher = BackgroundPublisher(Publisher(store))
    publisher.publish(state(0), 0).result(20)
    bucket.gate.clear()
    bucket.fault = broken
    first, second = publisher.publish(state(1), 1), publisher.publish(state(2), 2)
    bucket.gate.set()
    assert isinstance(first.exception(20), OSError) and isinstance(second.exception(20), CancelledError)
    with pytest.raises(PublishFailed, match="version 1 could not be published.*No space left"):
        publisher.acknowledge("engine", 0)
    assert store.index().newest == 0
    bucket.fault = lambda key: None
    assert publisher.publish(state(1), 1).result(20).base == 0
    publisher.close()
    assert state_digest(Receiver(store).catch_up().state) == state_digest(state(1))


def test_a_failure_no_one_met_surfaces_at_close(bucket: GatedBucket) -> None:
    publisher = BackgroundPublisher(Publisher(WeightStore(bucket)))
    bucket.fault = broken
    publisher.publish(state(0), 0)
    with pytest.raises(PublishFailed, match="version 0"):
        publisher.close()
    with pytest.raises(RuntimeError, match="closed"):
        publisher.publish(state(1), 1)


def test_the_base_advances_only_after_acknowledgement_in_the_background_too(bucket: GatedBucket) -> None:
    publisher = BackgroundPublisher(Publisher(WeightStore(bucket)))
    publisher.join("engine")
    bases = []
    for version in range(4):
        bases.append(publisher.publish(state(version), version).result(20).base)
        if version != 1:
            publisher.acknowledge("engine", version)
    publisher.close()
    assert bases == [None, 0, 0, 2]


KILLED = """
    import os, signal, sys, torch
    from etude.learn.weights.folder import FolderBucket
    from etude.learn.weights.publisher import BackgroundPublisher
    from etude.learn.weights.publisher import Publisher
    from etude.learn.weights.store import WeightStore

    left = int(sys.argv[2])

    class Dying(FolderBucket):
        "Kills its process at the n-th step: before a write, half way through it, or after it."
        def put(self, key, data):
            self.step()
            path = self.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(".partial-" + path.name).write_bytes(data[: len(data) // 2])
            self.step()
            super().put(key, data)
            self.step()
        def remove(self, folder):
            self.step()
            super().remove(folder)
        def step(self):
            global left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def state(version):
        weights = torch.arange(3000.0).bfloat16()
        weights[version::97] += 1000
        return {"w": weights, "b": torch.full((5,), float(version))}

    from pathlib import Path
    publisher = BackgroundPublisher(Publisher(WeightStore(Dying(Path(sys.argv[1]))), anchor_every=2, keep_anchors=1, workers=1))
    first = publisher._publisher.newest
    for version in range(0 if first is None else first + 1, 4):
        publisher.publish(state(version), version)
    publisher.close()
"""


@pytest.mark.parametrize("stride", [8, pytest.param(1, marks=pytest.mark.nightly)])
def test_killed_between_any_two_steps_the_store_is_whole_and_the_next_publisher_goes_on(
    tmp_path: Path, stride: int
) -> None:
    """The publisher runs in forked children that die at a later step each; one finally reaches the end."""
    code = compile(textwrap.dedent(KILLED), "killed", "exec")
    seen, steps = set(), 0
    while steps < 200:
        folder = tmp_path / str(steps)
        if not died(code, folder, steps):
            break
        index = WeightStore(folder).index()
        seen.add(index.newest)
        if index.newest is not None:
            assert inspect.verify(WeightStore(folder))["whole"]
            assert state_digest(Receiver(WeightStore(folder)).catch_up().state) == state_digest(state(index.newest))
        assert not died(code, folder, 10**9)  # a new publisher on what the dead one left
        found = {path.name for path in folder.iterdir() if path.is_dir()}
        assert found == {entry.name for entry in WeightStore(folder).index().entries}
        assert state_digest(Receiver(WeightStore(folder)).catch_up().state) == state_digest(state(3))
        steps += stride
    assert 20 < steps < 200 and {None, 0, 2} <= seen <= {None, 0, 1, 2, 3}


def died(code: object, folder: Path, steps: int) -> bool:
    """Whether a child that may take this number of steps was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sys.argv = ["killed", str(folder), str(steps)]
            exec(code, {"__name__": "killed"})  # type: ignore[arg-type]
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
