"""The reward that a task's own script leaves: Harbor's rules (`harbor` 0.24, its `verifier`), and a bound on what is read.

    /logs/verifier/reward.json    an object of finite numbers, whose `reward` is the score, or one number; if it is there, it alone counts
    /logs/verifier/reward.txt     one finite number

Anything else is no reward, and says why: empty, no JSON, a text for a number, NaN, an infinity, a link, too large. Harbor ends such a trial
with an exception; here it is a score of 0 with that reason, for what the tested code can break is its fault. Scores lie in [0, 1].
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable

FOLDER = "/logs/verifier"
MAX_BYTES = 1 << 16  # a number, or a handful of them by name
KEY = "reward"


@dataclass(frozen=True)
class Reward:
    """`value` as it is in the file; `score` is the same, kept in [0, 1]. `metrics`: the other numbers of an object."""

    value: float
    metrics: dict[str, float]

    @property
    def score(self) -> float:
        return min(1.0, max(0.0, self.value))


class NoReward(Exception):
    """There is none that counts; says why."""


async def reward_in(sandbox: Disposable, folder: str = FOLDER) -> Reward:
    """Raises NoReward, InfraError."""
    listed = await _files(sandbox, folder)
    for name, read in (("reward.json", of_json), ("reward.txt", of_text)):
        if name not in listed:
            continue
        kind, size = listed[name]
        if kind != "file":
            raise NoReward(f"{name} is no plain file but a {kind}")
        if size > MAX_BYTES:
            raise NoReward(f"{name} has {size} bytes, a reward has {MAX_BYTES} at most")
        try:
            data = await sandbox.read(f"{folder}/{name}", max_bytes=MAX_BYTES + 1)
        except UserError as error:
            raise NoReward(f"{name} can't be read: {error}") from error
        return read(data, name)
    raise NoReward(f"the tests left no reward in {folder}")


async def _files(sandbox: Disposable, folder: str) -> dict[str, tuple[str, int]]:
    try:
        return {entry.path: (entry.kind, entry.size_bytes) for entry in await sandbox.list(folder, recursive=False)}
    except UserError as error:
        raise NoReward(f"the tests left no folder {folder}: {error}") from error


def of_json(data: bytes, name: str = "reward.json") -> Reward:
    """Raises NoReward."""
    if len(data) > MAX_BYTES:
        raise NoReward(f"{name} has more than {MAX_BYTES} bytes")
    if not data:
        raise NoReward(f"{name} is empty")
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NoReward(f"{name} is no JSON: {str(error)[:80]}") from error
    numbers = {
        key: _finite(value, name, key)
        for key, value in (content if isinstance(content, dict) else {KEY: content}).items()
    }
    if KEY not in numbers:
        raise NoReward(f"{name} is an object without {KEY!r}: it has {', '.join(numbers)[:80] or 'nothing'}")
    return Reward(numbers.pop(KEY), numbers)


def of_text(data: bytes, name: str = "reward.txt") -> Reward:
    """Raises NoReward."""
    if len(data) > MAX_BYTES:
        raise NoReward(f"{name} has more than {MAX_BYTES} bytes")
    if not data:
        raise NoReward(f"{name} is empty")
    try:
        value = float(data.decode("utf-8"))
    except ValueError as error:
        raise NoReward(f"{name} holds no number but {data[:40]!r}") from error
    return Reward(_finite(value, name, KEY), {})


def _finite(value: Any, name: str, key: str) -> float:
    """`true` is a number to Harbor, and to this."""
    if not isinstance(value, int | float):
        raise NoReward(f"{name}: {key} is no number but {repr(value)[:40]}")
    try:
        number = float(value)
    except OverflowError as error:
        raise NoReward(f"{name}: {key} has too many digits") from error
    if not math.isfinite(number):
        raise NoReward(f"{name}: {key} is {number}, a reward is finite")
    return number
