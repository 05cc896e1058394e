"""Windows that are too short to be hit by chance. A process that reaches an armed window stops there until it is killed.

Nothing of this is in the product: `install_*` wrap its functions in the process that calls them. The process that kills makes the file
`arm-NAME` in the folder that the variable CHAOS_POINTS names. The first process that reaches the window renames the file to `at-NAME-PID` and
waits there to be killed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "CHAOS_POINTS"
PATIENCE_S = 30.0  # a process that is not killed by then goes on

# By name of the window: whose process it is in.
OWNER = {
    "ledger-half-a-line": "controller",
    "ledger-written": "controller",
    "steps-half-a-line": "controller",
    "before-group-rename": "controller",
    "after-group-rename": "controller",
    "before-scored-rename": "controller",
    "before-ended-rename": "controller",
    "after-ended-rename": "controller",
    "before-checkpoint-rename": "trainer",
    "after-checkpoint-rename": "trainer",
    "before-weights-index": "trainer",
    "after-weights-index": "trainer",
    "trained-not-told": "trainer",
    "weights-staged": "engine",
    "half-the-weights-applied": "engine",
    "weights-applied": "engine",
}


def at(name: str) -> bool:
    """Waits if the window is armed; whether it was."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return False
    armed = os.path.join(folder, f"arm-{name}")
    mine = os.path.join(folder, f"at-{name}-{os.getpid()}")
    try:
        os.rename(armed, mine)
    except FileNotFoundError:
        return False
    time.sleep(PATIENCE_S)
    return True


def armed(name: str) -> bool:
    """For a window that has to do something first."""
    folder = os.environ.get(FOLDER)
    return bool(folder) and os.path.exists(os.path.join(folder, f"arm-{name}"))


def around(owner: Any, method: str, before: Callable[..., str | None], after: Callable[..., str | None]) -> None:
    """Windows before and after each call of `owner.method`; the functions name them by the call's arguments."""
    real = getattr(owner, method)

    def call(*arguments: Any, **named: Any) -> Any:
        if name := before(*arguments):
            at(name)
        found = real(*arguments, **named)
        if name := after(*arguments):
            at(name)
        return found

    setattr(owner, method, call)


def nowhere(*arguments: Any) -> None:
    return None


def install_controller() -> None:
    from etude.rl import step_follower, steps
    from etude.rl.ledger import RlLedger

    def write(ledger: Any, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, **values}) + "\n"
        if armed("ledger-half-a-line"):
            ledger._file.write(line[: len(line) // 2])
            ledger._file.flush()
            at("ledger-half-a-line")
            ledger._file.write(line[len(line) // 2 :])
        else:
            ledger._file.write(line)
        ledger._file.flush()
        os.fsync(ledger._file.fileno())
        at("ledger-written")

    def append(path: Path, record: Any) -> None:
        if armed("steps-half-a-line"):
            with open(path, "ab") as file:
                file.write(b'{"step": 1, "groups": [0')
            at("steps-half-a-line")
        real_append(path, record)

    def renamed(when: str) -> Callable[..., str | None]:
        def name(side: Path, target: Path) -> str | None:
            if target.suffix != ".zst":
                return None
            of = target.parent.name
            return f"{when}-{of}-rename" if of in ("scored", "ended") else f"{when}-group-rename"

        return name

    real_append = steps.append
    step_follower.append = append  # type: ignore[assignment]
    RlLedger.write = write  # type: ignore[method-assign]
    around(Path, "rename", renamed("before"), renamed("after"))


def install_trainer() -> None:
    from etude.rl import learner

    def state(when: str) -> Callable[..., str | None]:
        return lambda part, final: f"{when}-checkpoint-rename" if str(final).endswith(".pt") else None

    def index(when: str) -> Callable[..., str | None]:
        return lambda partial, path: f"{when}-weights-index" if Path(path).name == "index.json" else None

    around(os, "replace", state("before"), state("after"))
    around(Path, "replace", index("before"), index("after"))
    # Reckoned once a step, behind the update. Not a method of the learner: Ray copies those into a class of its own, inherited ones too.
    around(learner, "state_digest", nowhere, lambda *_: "trained-not-told")


class Halfway(dict[str, Any]):
    """A state whose reader stops in the middle of reading it."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.read = 0

    def __getitem__(self, name: str) -> Any:
        self.read += 1
        # Each tensor is looked at up to three times: shape, type, then to be copied.
        if self.read == 5 * len(self) // 2:
            at("half-the-weights-applied")
        return super().__getitem__(name)


def install_engine() -> None:
    from etude.learn.engine import core
    from etude.learn.engine.service import WeightFollower

    real = core.load_checked
    core.load_checked = lambda model, state: real(model, Halfway(state))  # type: ignore[assignment]
    around(WeightFollower, "stage", nowhere, lambda *_: "weights-staged")
    around(WeightFollower, "apply", nowhere, lambda *_: "weights-applied")


def install_vllm() -> None:
    """The same windows where vLLM is the engine: its node's copy is written, and not yet called whole, in the second."""
    from etude.learn.engine.vllm import host_copy
    from etude.learn.engine.vllm.service import RequestTally

    around(host_copy.HostCopy, "bring", nowhere, lambda *_: "weights-staged")
    around(host_copy, "state_digest", lambda *_: "half-the-weights-applied", nowhere)
    around(RequestTally, "swapped", lambda *_: "weights-applied", nowhere)
