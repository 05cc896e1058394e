"""Files that a weight or a rollout passes through: `python benchmarks/path_files.py {weight,rollout} [--json]`.

A trainer and an engine run as threads of this process, behind the services that the controller asks. A file is on the path if one of its
functions was entered in the meantime.

- weight: one version goes from the trainer through the store into the engine and is acknowledged. The file of the step that updates the
  model is added: it ends where the path begins.
- rollout: from the first attempt to the end of the first training step. The sandbox counts by its interface only; the model's layers, the
  making of tasks and the weights' path, which run in the same time, are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "etude"
sys.path.insert(0, str(ROOT / "tests" / "rl"))

from run_in_threads import Threads, a_run, live, tiny_checkpoint  # noqa: E402

from etude.learn.train.policy_step import PolicyTrainer  # noqa: E402
from etude.rl.services import Services  # noqa: E402

START = "learn/train/policy_step.py"
OUTSIDE_A_ROLLOUT = ("sandbox/", "learn/model/", "learn/weights/", "tasks/generate/", "core/events/", "core/files.py")


class EnteredFiles:
    """A context in which functions of `etude` are noted, in every thread that enters one.

    `begin` and `end` are (file, function): recording starts with the first entry of the one and ends when the other first returns.
    """

    def __init__(self, begin: tuple[str, str] | None = None, end: tuple[str, str] | None = None) -> None:
        self.files: set[str] = set()
        self._begin, self._end = begin, end
        self._lock = threading.Lock()

    def __enter__(self) -> EnteredFiles:
        threading.setprofile_all_threads(self._note) if sys.version_info >= (3, 12) else threading.setprofile(
            self._note
        )
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        name, function = frame.f_code.co_filename, frame.f_code.co_name
        if event not in ("call", "return") or not name.startswith(str(SOURCE)) or function == "<module>":
            return
        here = (str(Path(name).relative_to(SOURCE)), function)
        with self._lock:
            if event == "call" and here == self._begin:
                self._begin = None
            elif event == "return" and here == self._end and self._begin is None:
                self._begin = ("", "")  # nothing has this name: recording is over
            if event == "call" and self._begin is None:
                self.files.add(here[0])


async def weight_path(folder: Path) -> list[str]:
    """The files of one version's way from the trainer to its acknowledgement."""
    run = a_run(tiny_checkpoint(folder), folder / "rl")
    run.folder.mkdir()
    with EnteredFiles() as entered:  # before the threads start, for those that exist are not followed
        places = Threads(run)
        services = Services(places, run.settings, run.observer)
        await services.restore(0)
        await services.publish(0)
        await services.sync(0)
        entered.files.clear()
        await services.publish(1)
        await services.sync(1)
        found = entered.files | {START}
    await services.close()
    for engine in places.engines:
        engine.kill()
    return sorted(found)


def rollout_path(folder: Path) -> list[str]:
    """The files of the first step's rollouts, from the first attempt to the update of the weights."""
    run = a_run(tiny_checkpoint(folder), folder / "rl", steps=1)
    with EnteredFiles(begin=("rollout/attempt.py", "attempt"), end=(START, PolicyTrainer.update.__name__)) as entered:
        live(run)
    return sorted(name for name in entered.files if not name.startswith(OUTSIDE_A_ROLLOUT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", choices=("weight", "rollout"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = asyncio.run(weight_path(folder)) if options.path == "weight" else rollout_path(folder)
    lines = sum(len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name in found)
    if options.json:
        print(json.dumps({"files": len(found), "lines": lines, "names": found}))
    else:
        print("\n".join([*found, f"{len(found)} files, {lines} lines"]))


if __name__ == "__main__":
    main()
