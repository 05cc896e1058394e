"""A node's copy of the weights, for all vLLM engines on it: a checkpoint directory in Hugging Face layout, brought from version to version
by deltas and checked there, bit by bit (promise 7).

One file, written in place, under a lock: a writer has it alone, engines read it together. `held.json` says what
is in it and is away while that changes, so a kill in the middle leaves a copy that is rebuilt from an anchor.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etude.core.files import replace_file
from etude.learn.engine.vllm.state_file import StateFile, write_state_file
from etude.learn.model.checkpoint import TOKENIZER_FILES, load_config
from etude.learn.weights.digest import State, bits, state_digest, tensor_digest
from etude.learn.weights.errors import CorruptTensor
from etude.learn.weights.finite import require_finite
from etude.learn.weights.receiver import ReceivedState, Receiver

FILE, HELD, LOCK = "model.safetensors", "held.json", "lock"


@dataclass(frozen=True)
class HostCopyState:
    """What the copy holds: `digests` by key of the file."""

    version: int
    digests: dict[str, str]
    file: Path


class HostCopy:
    """One folder; any number of processes may have it open."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        """`checkpoint`: whose model it is; its configuration and tokenizer are next to the weights, so that any reader takes the folder."""
        self.folder = folder
        self._layers = load_config(checkpoint).layers
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", *TOKENIZER_FILES):
            if (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, folder / name)

    def bring(self, receiver: Receiver, goal: int | None = None) -> ReceivedState:
        """To version `goal`, by default the newest of the store. Raises WeightsError and holds what it held, or nothing;
        NotFinite for weights that are not finite."""
        with self._locked(fcntl.LOCK_EX):
            held = self._held()
            file = None if held is None else StateFile(held.file)
            if held is None or file is None:
                received = receiver.catch_up(goal=goal)
                self._write(None, {}, received)
            else:
                received = receiver.catch_up(file.state, held.version, goal=goal)
                if received.version != held.version or changed(file.state, received.state):
                    self._write(file, held.digests, received)
            return received

    @contextmanager
    def reading(self) -> Iterator[HostCopyState]:
        """What it holds, unchanged for as long as the block runs. Raises LookupError if it holds nothing."""
        with self._locked(fcntl.LOCK_SH):
            held = self._held()
            if held is None:
                raise LookupError(f"{self.folder} holds no weights: bring them there before an engine reads them")
            yield held

    def _write(self, file: StateFile | None, digests: dict[str, str], received: ReceivedState) -> None:
        require_finite(received.state, f"version {received.version} of the weights")
        (self.folder / HELD).unlink(missing_ok=True)
        path = self.folder / FILE
        digests = dict(digests)
        if file is None or not file.fits(received.state):
            side = path.with_suffix(".tmp")
            write_state_file(side, received.state, self._layers)
            side.rename(path)
            file, digests = StateFile(path), {}
            fresh = list(file.state)
        else:
            fresh = changed(file.state, received.state)
            for name in fresh:
                bits(file.state[name])[:] = bits(received.state[name])
        if state_digest(file.state) != state_digest(received.state):
            raise CorruptTensor(
                f"{path} is not what version {received.version} is, bit by bit: look at the disk's health"
            )
        digests |= {key: tensor_digest(part) for name in fresh for key, part in file.parts[name].items()}
        replace_file(self.folder / HELD, json.dumps({"version": received.version, "digests": digests}))

    def _held(self) -> HostCopyState | None:
        path = self.folder / HELD
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        return HostCopyState(found["version"], found["digests"], self.folder / FILE)

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with open(self.folder / LOCK, "a") as lock:
            fcntl.flock(lock, how)
            yield


def changed(old: State, new: State) -> list[str]:
    """Names of the tensors of `new` whose bits are not those of `old`; both have the same names and shapes."""
    return [name for name in new if name not in old or not np.array_equal(bits(old[name]), bits(new[name]))]
