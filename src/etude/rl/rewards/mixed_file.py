"""`mixed.jsonl`: with which weights every step's rewards were made, written before the step is trained (promise 6).

A resumed run mixes a step that is written here as it was. Settings that say otherwise are refused: they may change what comes,
not what was.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from etude.rl.rewards.mix import Mix, mix_at
from etude.rl.settings import RlSettings

MIXED = "mixed.jsonl"  # in the stage's folder


class RewardsChanged(ValueError):
    """The settings mix a step otherwise than it was mixed."""


class MixedFile:
    """One line a step. A line torn by a kill belongs to a step that was not trained: it is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._steps = _read(path)

    def at(self, step: int, settings: RlSettings) -> Mix:
        """How `step` is mixed, on disk when this returns. Raises RewardsChanged, OSError."""
        mix = mix_at(step, settings)
        if (before := self._steps.get(step)) is not None:
            if _plain(mix) != before:
                raise RewardsChanged(
                    f"step {step} was mixed with {_told(before)}, the settings say {_told(_plain(mix))}: put them back, and give "
                    f"changes to rl.rewards.schedule with from_step {max(self._steps) + 1} or later"
                )
            return mix
        line = json.dumps({"step": step, **_plain(mix)}).encode() + b"\n"
        with open(self.path, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._steps[step] = _plain(mix)
        return mix


def check_mixed(path: Path, settings: RlSettings) -> None:
    """Raises RewardsChanged if the settings mix any step otherwise than is written."""
    known = MixedFile(path)
    for step in sorted(_read(path)):
        known.at(step, settings)


def _plain(mix: Mix) -> dict[str, object]:
    """As JSON reads it back."""
    return json.loads(json.dumps(asdict(mix)))


def _told(mix: dict[str, object]) -> str:
    return json.dumps(mix, sort_keys=True)


def _read(path: Path) -> dict[int, dict[str, object]]:
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with open(path, "r+b") as file:
            file.truncate(whole)
    try:
        rows = [json.loads(line) for line in data[:whole].splitlines()]
        return {row.pop("step"): row for row in rows}
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} holds a line that is no mix ({error}); remove the rl folder to start over") from error
