"""`benchmarks/sandbox_runner/measure.py`: whose memory counts, and what it does where a machine has room for fewer sandboxes."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.spec import ExecResult, SandboxSpec

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sandbox_runner" / "measure.py"


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


class SmallPool:
    """Has room for `most` sandboxes."""

    def __init__(self, most: int) -> None:
        self.most, self.live, self.commands = most, 0, 0

    def probe(self) -> Any:
        return SimpleNamespace(limits="none")

    async def create(self, spec: SandboxSpec) -> Any:
        if self.live == self.most:
            raise CapacityExhausted(f"{self.most} live already", retry_after_s=1.0)
        self.live += 1

        async def kill() -> None:
            self.live -= 1

        async def run(argv: list[str], warm: bool) -> ExecResult:
            self.commands += 1
            return ExecResult(0, b"", b"")

        return SimpleNamespace(kill=kill, run=run)

    async def close(self) -> None:
        assert self.live == 0


def test_only_processes_below_the_root_count(script: dict[str, Any]) -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1, 21: 20}
    assert script["descendants"](parents, 10) == {11, 12}
    assert script["descendants"](parents, 99) == set()


async def test_fewer_sandboxes_are_measured_where_there_is_no_room_and_the_result_says_so(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = SmallPool(most=9)

    async def opened(settings: object) -> SmallPool:
        return pool

    monkeypatch.setitem(script["measure"].__globals__, "open_pool", opened)
    found = await script["measure"](16, 2, 5)
    assert found["live_of_each_kind"] == 4 and len(found["refused"]) == 2
    assert found["refused"][0] == "16 sandboxes of each kind: 9 live already"
    assert {name: row["commands"] for name, row in found["kinds"].items()} == {"warm": 10, "cold": 10}
    assert pool.commands == 30 and pool.live == 0
