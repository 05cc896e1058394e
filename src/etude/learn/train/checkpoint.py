"""Training state on disk: whole or not at all (promise 6: exact resume).

A state is written next to its final name, flushed to the disk, then renamed: a kill or a full disk at any moment leaves the
previous state as it was. It holds tensors and plain values only, and is read without running code from the file.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from etude.core.files import sync_folder

PREFIX, SUFFIX, UNFINISHED = "state-", ".pt", ".part"


class TrainingStateError(Exception):
    """A training state could not be written or read; the message says which one is still good."""


def save_state(directory: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Writes the state of `step` and removes all but the newest `keep`; raises CheckpointError when it can't."""
    directory.mkdir(parents=True, exist_ok=True)
    final = directory / f"{PREFIX}{step:08d}{SUFFIX}"
    part = final.with_suffix(UNFINISHED)
    try:
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, final)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
        part.unlink(missing_ok=True)
        good = newest_state(directory)
        raise TrainingStateError(
            f"cannot write the training state of step {step} to {directory}: {error}; "
            f"{f'{good.name} is intact' if good else 'no earlier state exists'}; free space and start again to go on"
        ) from error
    sync_folder(directory)  # the rename must reach the disk before an older state is removed
    for old in _states(directory)[:-keep]:
        old.unlink()
    for unfinished in directory.glob(f"{PREFIX}*{UNFINISHED}"):  # left by a kill
        unfinished.unlink()
    return final


def newest_state(directory: Path) -> Path | None:
    """The newest finished state, or None."""
    states = _states(directory)
    return states[-1] if states else None


def load_state(path: Path) -> dict[str, Any]:
    """Reads one state."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainingStateError(
            f"cannot read the training state {path}: {reason}; remove it to go on without"
        ) from error


def _states(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{PREFIX}*{SUFFIX}"))
