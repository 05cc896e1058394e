"""Training state on disk: whole or not at all (promise 6: exact resume).

A state is written next to its final name, flushed to the disk, then renamed: a kill or a full disk at any moment leaves the
previous state as it was. It holds tensors and plain values only, and is read without running code from the file. One process writes a file, several
ranks that train one model write a folder (`learn/parallel/rank_states.py`); each reads both.
"""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from etude.core.files import sync_folder
from etude.learn.parallel.shared_training import ALONE, OptimizedParameters, SharedTraining

PREFIX, SUFFIX, FOLDER_SUFFIX, UNFINISHED = "state-", ".pt", ".ranks", ".part"


class TrainingStateError(Exception):
    """A training state could not be written or read; the message says which one is still good."""


def save_state(
    directory: Path,
    step: int,
    state: dict[str, Any],
    keep: int,
    shared: SharedTraining = ALONE,
    optimizers: OptimizedParameters = (),
) -> Path:
    """Writes the state of `step` and removes all but the newest `keep`; raises TrainingStateError where it can't. Called by all ranks, whose
    `optimizers` have these parameters."""
    directory.mkdir(parents=True, exist_ok=True)
    final = directory / f"{PREFIX}{step:08d}{SUFFIX if shared.ranks == 1 else FOLDER_SUFFIX}"
    part = final.with_suffix(UNFINISHED)
    if shared.rank == 0:
        for unfinished in directory.glob(f"{PREFIX}*{UNFINISHED}"):  # left by a kill
            _remove(unfinished)
    try:
        shared.write(part, state, optimizers)
        if shared.rank == 0:
            _put(part, final, keep)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
        if shared.rank == 0:
            _remove(part)
        good = newest_state(directory)
        raise TrainingStateError(
            f"cannot write the training state of step {step} to {directory}: {error}; "
            f"{f'{good.name} is intact' if good else 'no earlier state exists'}; free space and start again to go on"
        ) from error
    shared.same(None)  # no rank goes on before the state is there
    return final


def _put(part: Path, final: Path, keep: int) -> None:
    """Gives a written state its name, and removes older ones."""
    for suffix in (SUFFIX, FOLDER_SUFFIX):  # of the same step, from a life of the run whose later states are gone
        _remove(final.with_suffix(suffix))
    os.replace(part, final)
    sync_folder(final.parent)  # the rename must reach the disk before an older state is removed
    for old in _states(final.parent)[:-keep]:
        _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def newest_state(directory: Path) -> Path | None:
    """The newest finished state, or None."""
    states = _states(directory)
    return states[-1] if states else None


def state_of(directory: Path, step: int) -> Path:
    """The state of `step`, which one process or several ranks wrote; the name of one process' where there is none."""
    names = [directory / f"{PREFIX}{step:08d}{suffix}" for suffix in (SUFFIX, FOLDER_SUFFIX)]
    return next(filter(Path.exists, names), names[0])


def load_state(path: Path, shared: SharedTraining = ALONE, optimizers: OptimizedParameters = ()) -> dict[str, Any]:
    """Reads one state, or what this rank has of it. Called by all ranks, whose `optimizers` have these parameters."""
    try:
        return shared.read(path, optimizers)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainingStateError(
            f"cannot read the training state {path}: {reason}; remove it to go on without"
        ) from error


def _states(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob(f"{PREFIX}*") if path.suffix in (SUFFIX, FOLDER_SUFFIX))
