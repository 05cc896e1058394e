"""What is asked of a cluster before a run starts on it: each refusal names the machine, the value and the remedy."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.cluster import (
    ClusterError,
    MachineFacts,
    code_digest,
    has_all,
    require_alike,
    require_listener,
    require_region_alike,
    require_room,
    sight,
)
from etude.rl.settings import ClusterSettings

HERE = MachineFacts("3.11.2", "c0de" * 16, {"ray": "2.60.0", "torch": "2.13.0"}, (), "proof")


def refused(there: MachineFacts) -> str:
    with pytest.raises(ClusterError) as found:
        require_alike("machine b", there, HERE, "proof", Path("/runs/x/rl"))
    return str(found.value)


def test_machines_that_are_alike_pass():
    require_alike("machine b", replace(HERE), HERE, "proof", Path("/runs/x/rl"))


def test_a_machine_that_differs_is_named_with_what_differs():
    assert "machine b does not see /runs/x/rl: put" in refused(replace(HERE, missing=("/runs/x/rl",)))
    assert "machine b has another /runs/x/rl" in refused(replace(HERE, proof=""))
    assert "runs Python 3.12.0, this machine 3.11.2" in refused(replace(HERE, python="3.12.0"))
    assert "has ray 2.59.0, this machine 2.60.0" in refused(replace(HERE, versions=HERE.versions | {"ray": "2.59.0"}))
    assert "another etude" in refused(replace(HERE, code="0ther" * 12))


def test_a_machine_of_a_region_needs_the_checkpoint_and_the_code_and_not_the_runs_folder():
    far, needed = replace(HERE, missing=("/runs/x/rl",), proof=""), [Path("/models/m")]
    require_region_alike("machine far", far, HERE, needed)
    with pytest.raises(ClusterError, match="machine far does not see /models/m: copy"):
        require_region_alike("machine far", replace(far, missing=("/runs/x/rl", "/models/m")), HERE, needed)
    with pytest.raises(ClusterError, match="another etude"):
        require_region_alike("machine far", replace(far, code="0ther" * 12), HERE, needed)
    assert has_all({"far": 2.0, "CPU": 4.0}, {"far": 1}) and not has_all({"CPU": 4.0}, {"far": 1})


@given(
    st.lists(st.fixed_dictionaries({}, optional={"GPU": st.integers(0, 8), "CPU": st.integers(0, 64)}), max_size=6),
    st.integers(1, 8),
    st.sampled_from([{"GPU": 1.0}, {"GPU": 2.0, "CPU": 4.0}, {"CPU": 0.5}]),
)
def test_room_is_counted_machine_by_machine(machines: list[dict[str, float]], count: int, taken: dict[str, float]):
    """A process lies on one machine: halves of two don't add up."""
    places = 0
    for machine in machines:
        left = dict(machine)
        while all(left.get(name, 0) >= amount for name, amount in taken.items()):
            left = {name: left[name] - taken.get(name, 0) for name in left}
            places += 1
    if places >= count:
        require_room("engine", count, taken, machines)
    else:
        with pytest.raises(ClusterError, match=f"room for {places}, and the run wants {count}"):
            require_room("engine", count, taken, machines)


def test_an_address_where_nothing_listens_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        require_listener(f"127.0.0.1:{port}")
    with pytest.raises(ClusterError, match=f"127.0.0.1:{port}.*nothing listens there"):
        require_listener(f"127.0.0.1:{port}")
    for wrong in ("ray://host:1", "host", "host:", ":6379"):
        with pytest.raises(ClusterError, match="is not HOST:PORT"):
            require_listener(wrong)


def test_resources_without_a_cluster_or_of_no_amount_are_refused():
    with pytest.raises(ValueError, match="without cluster.address"):
        ClusterSettings(engine={"GPU": 1})
    with pytest.raises(ValueError, match="amounts are above 0"):
        ClusterSettings(address="auto", trainer={"GPU": 0})


def test_a_machine_tells_what_it_sees(tmp_path: Path):
    probe = tmp_path / "rl" / "probe"
    facts = sight(probe, [tmp_path])
    assert facts.missing == (str(tmp_path / "rl"),) and facts.proof == ""
    probe.parent.mkdir()
    probe.write_text("word")
    assert sight(probe, [tmp_path]) == replace(facts, missing=(), proof="word")


def test_the_digest_of_code_tells_a_changed_a_renamed_and_a_new_module(tmp_path: Path):
    (tmp_path / "a.py").write_text("1")
    digests = [code_digest(tmp_path)]
    (tmp_path / "a.py").write_text("2")
    digests.append(code_digest(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests.append(code_digest(tmp_path))
    (tmp_path / "c.py").write_text("")
    digests.append(code_digest(tmp_path))
    assert len(set(digests)) == 4
    (tmp_path / "notes.txt").write_text("no code")
    assert code_digest(tmp_path) == digests[-1]
