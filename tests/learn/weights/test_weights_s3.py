"""A weight store in a bucket of a real S3 server: the promises of the folder hold, and errors say what to look at.

Faults are made on the line before the server. Its conditional writes are the line's too: the server has none.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from etude.learn.weights import inspect
from etude.learn.weights.errors import BadStore, MissingShard, StoreTakenOver
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.s3 import S3Bucket
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore

_prefixes = itertools.count()


def state(version: int, size: int = 2000) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(size, generator=generator)
    weights[version % size] += version
    return {"w": weights.bfloat16(), "b": torch.full((7,), float(version))}


def place() -> str:
    return f"s3://bucket/runs/{next(_prefixes)}/weights"


def quick(url: str, attempts: int = 3) -> WeightStore:
    return WeightStore(S3Bucket.at(url, attempts=attempts))


def test_publisher_and_receiver_meet_in_a_bucket_bit_by_bit(s3_access: Any) -> None:
    url = place()
    publisher, receiver, held = Publisher(WeightStore(url), anchor_every=3), Receiver(WeightStore(url)), None
    publisher.join("engine")
    for version in range(5):
        report = publisher.publish(state(version), version)
        held = receiver.catch_up(held.state if held else None, held.version if held else None)
        assert state_digest(held.state) == report.digest == state_digest(state(version))
        publisher.acknowledge("engine", version)
    assert publisher.base == 4 and inspect.verify(WeightStore(url))["whole"]
    assert Receiver(WeightStore(url)).catch_up().walked == ("anchor-3", "delta-4")


def test_retired_versions_leave_the_bucket(s3_access: Any) -> None:
    url = place()
    publisher = Publisher(WeightStore(url), anchor_every=2, keep_anchors=1)
    for version in range(5):
        publisher.publish(state(version), version)
    assert set(WeightStore(url).bucket.folders()) == {"anchor-4", "delta-4"}  # the base, 3, is still held


def test_readers_never_list(line: Any) -> None:
    url = place()
    Publisher(WeightStore(url)).publish(state(0), 0)
    line.seen.clear()
    Receiver(WeightStore(url)).catch_up()
    assert {method for method, _ in line.seen} == {"GET"} and not any(
        key.rstrip("/") == "/bucket" for _, key in line.seen
    )


def test_the_index_is_written_last_and_the_manifest_after_its_shards(line: Any) -> None:
    publisher = Publisher(WeightStore(place()))
    line.seen.clear()
    publisher.publish(state(0), 0)
    puts = [key.rsplit("/", 1)[1].split("-")[0] for method, key in line.seen if method == "PUT"]
    assert puts == ["shard", "shard", "manifest", "index.json"]


@pytest.mark.parametrize("fault", [500, 503, "lost"])
def test_failures_that_pass_are_tried_again(line: Any, fault: int | str) -> None:
    left = [2]

    def fails(method: str, key: str) -> int | str | None:
        left[0] -= 1
        return fault if left[0] >= 0 else None

    url = place()
    publisher = Publisher(WeightStore(url))
    line.fault = fails
    publisher.publish(state(0), 0)
    left[0] = 2
    assert state_digest(Receiver(WeightStore(url)).catch_up().state) == state_digest(state(0))
    assert left[0] < 0


def test_an_answer_that_ends_early_is_read_again(line: Any) -> None:
    url = place()
    Publisher(WeightStore(url)).publish(state(0), 0)
    torn = iter(["torn", "torn"])
    line.fault = lambda method, key: next(torn, None) if "shard" in key else None
    assert state_digest(Receiver(WeightStore(url), workers=1).catch_up().state) == state_digest(state(0))


def test_an_upload_that_fails_for_good_publishes_nothing_and_may_be_repeated(line: Any) -> None:
    url = place()
    publisher = Publisher(quick(url, attempts=1))
    publisher.publish(state(0), 0)
    for kind in ("shard", "manifest", "index"):
        line.fault = lambda method, key, kind=kind: 500 if method == "PUT" and f"/{kind}" in key else None
        with pytest.raises(BadStore, match=f"could not .*{kind}"):
            publisher.publish(state(1), 1)
        assert Receiver(WeightStore(url)).catch_up().version == 0
    line.fault = lambda method, key: None
    assert publisher.publish(state(1), 1).base == 0
    assert state_digest(Receiver(WeightStore(url)).catch_up().state) == state_digest(state(1))


@pytest.mark.parametrize("conditional", [True, False])
def test_the_later_of_two_writers_shuts_the_earlier_out(line: Any, conditional: bool) -> None:
    line.conditional = conditional
    url = place()
    old = Publisher(WeightStore(url))
    old.publish(state(0), 0)
    new = Publisher(WeightStore(url))
    assert WeightStore(url).bucket.conditional is None and old.store.bucket.conditional is conditional  # type: ignore[attr-defined]
    with pytest.raises(StoreTakenOver, match="must stop"):
        old.publish(state(5), 1)
    new.publish(state(1), 1)
    assert state_digest(Receiver(WeightStore(url)).catch_up().state) == state_digest(state(1))


def test_a_commit_whose_answer_was_lost_is_known_for_our_own(line: Any) -> None:
    line.conditional = True
    url = place()
    publisher = Publisher(WeightStore(url))
    lost = iter(["lost"])
    line.fault = lambda method, key: next(lost, None) if method == "PUT" and key.endswith("index.json") else None
    publisher.publish(state(0), 0)
    publisher.publish(state(1), 1)
    assert Receiver(WeightStore(url)).catch_up().version == 1


def test_a_commit_that_was_given_up_though_it_was_made_is_no_other_writers(line: Any) -> None:
    line.conditional = True
    url = place()
    publisher = Publisher(quick(url, attempts=1))
    publisher.publish(state(0), 0)
    lost = iter(["lost"])
    line.fault = lambda method, key: next(lost, None) if method == "PUT" and key.endswith("index.json") else None
    with pytest.raises(BadStore):
        publisher.publish(state(1), 1)
    publisher.publish(state(2), 2)  # from here on it is as if the lost one had not been
    found = Receiver(WeightStore(url)).catch_up()
    assert found.version == 2 and state_digest(found.state) == state_digest(state(2))
    Publisher(WeightStore(url))
    with pytest.raises(StoreTakenOver, match="must stop"):
        publisher.publish(state(3), 3)


def test_errors_say_what_to_look_at(s3_access: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadStore, match="there is no bucket nowhere"):
        Publisher(quick("s3://nowhere/x"))
    with pytest.raises(ValueError, match="is no s3://bucket/prefix"):
        S3Bucket.at("s3:///x")
    with pytest.raises(MissingShard, match="anchor-9/x is not in s3://bucket"):
        quick(place()).bucket.get("anchor-9/x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BadStore, match="refuses the credentials"):
        Receiver(quick(place())).catch_up()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BadStore, match="no credentials: set AWS_ACCESS_KEY_ID"):
        Receiver(quick(place())).catch_up()
    monkeypatch.setenv("ETUDE_S3_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(BadStore, match="does not answer"):
        Receiver(quick(place(), attempts=1)).catch_up()


@pytest.mark.parametrize("heeds", [True, False])
def test_an_object_that_a_reader_knows_is_not_sent_again(line: Any, heeds: bool) -> None:
    bucket = quick(place()).bucket
    bucket.put("index.json", b"first")
    data, tag = bucket.get("index.json")
    assert data == b"first" and bucket.news("index.json", tag) is None
    bucket.put("index.json", b"second")
    found = bucket.news("index.json", tag if heeds else None)
    assert found is not None and found[0] == b"second"
    with pytest.raises(MissingShard):
        bucket.news("none", tag)


def test_a_part_of_an_object_is_asked_for_alone(s3_access: Any) -> None:
    bucket = quick(place()).bucket
    bucket.put("a", bytes(range(100)))
    assert bucket.part("a", 10, 13) == bytes([10, 11, 12]) and bucket.part("a", 98, 200) == bytes([98, 99])


def test_a_url_may_name_its_server(s3_access: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_S3_ENDPOINT", "http://127.0.0.1:9")
    url = f"{place()}?endpoint={s3_access.endpoint}"
    Publisher(WeightStore(url)).publish(state(0), 0)
    assert Receiver(WeightStore(url)).catch_up().version == 0 and "?" not in WeightStore(url).url
    with pytest.raises(ValueError, match="nor one with .endpoint="):
        S3Bucket.at("s3://bucket/x?region=y")
    with pytest.raises(BadStore, match="profile .absent. could not be found"):
        S3Bucket.at("s3://bucket/x?profile=absent")


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="gs://x: weights go to a folder or to s3://bucket/prefix"):
        WeightStore("gs://x")
