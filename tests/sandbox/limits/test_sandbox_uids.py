"""Claims on ranges of users: disjoint for all callers, free again when their holders are gone, taken from what the system gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.inside.users import SIZE
from etude.sandbox.launch import uids
from etude.sandbox.launch.uids import UidRangeAllocator, UidSource

HOLDER = """
import sys, time
from pathlib import Path
from etude.sandbox.launch.uids import UidRangeAllocator, UidSource
held = [UidRangeAllocator(UidSource(1000, 5000, 4), Path(sys.argv[1])).claim() for _ in range(3)]
print(*(one.uid for one in held), flush=True)
time.sleep(1000)
"""


def test_no_range_is_claimed_twice_and_a_released_one_comes_back(tmp_path: Path) -> None:
    """Test 49 of docs/sandbox.md, without processes."""
    pools = [UidRangeAllocator(UidSource(1000, 5000, 4), tmp_path) for _ in range(2)]
    claimed = [pools[number % 2].claim() for number in range(4)]
    assert sorted(one.uid for one in claimed) == [1000 + index * SIZE for index in range(4)]
    assert all(one.gid - one.uid == 4000 for one in claimed)
    with pytest.raises(CapacityExhausted, match="all 4 ranges") as refused:
        pools[0].claim()
    assert refused.value.retry_after_s > 0
    claimed[2].release()
    claimed[2].release()
    again = pools[1].claim()
    assert again.uid == claimed[2].uid
    for one in (*claimed, again):
        one.release()


def test_claims_of_a_killed_process_are_free(tmp_path: Path) -> None:
    ours = UidRangeAllocator(UidSource(1000, 5000, 4), tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        assert len(theirs) == 3
        mine = ours.claim()
        assert mine.uid not in theirs
        with pytest.raises(CapacityExhausted):
            ours.claim()
        other.kill()
    assert ours.claim().uid in theirs


def test_root_takes_numbers_that_no_one_hands_out() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root")
    found = uids.source()
    assert found is not None and found.tools is None
    assert 0x7000_0000 <= found.uid and found.uid + found.ranges * SIZE <= 0x7800_0000


def test_a_user_takes_whole_ranges_of_its_largest_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    subuid, subgid = tmp_path / "subuid", tmp_path / "subgid"
    subuid.write_text("# ours\nnobody:500000:100\n65534:100000:140000\nsomebody:1:999999\nbroken\n")
    subgid.write_text("nobody:300000:65536\n")
    found = uids.source(subuid, subgid)
    assert found is not None and found == UidSource(100000, 300000, 1, ("/usr/bin/newuidmap", "/usr/bin/newgidmap"))
    assert found.config()["uids"] == [100000, 65536]
    subgid.write_text("nobody:300000:65535\n")
    assert uids.source(subuid, subgid) is None  # half a range is none
    assert uids.source(tmp_path / "absent", subgid) is None
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert uids.source(subuid, subgid) is None
