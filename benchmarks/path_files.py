"""Files that a weight passes through: `python benchmarks/path_files.py [--json]`.

A trainer and an engine run as threads of this process, behind the services that the controller asks. While one version goes from the
trainer through the store into the engine and is acknowledged, every function of `etude` that is entered is noted. A file is on the path if
one of its functions was entered then. The file of the step that updates the model is added: it ends where the path begins.
"""

from __future__ import annotations

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

from run_in_threads import Threads, a_run, tiny_checkpoint  # noqa: E402

from etude.rl.services import Services  # noqa: E402

START = "learn/train/policy_step.py"


class EnteredFiles:
    """A context in which functions of `etude` are noted, in every thread that enters one."""

    def __init__(self) -> None:
        self.files: set[str] = set()
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
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(SOURCE)) and frame.f_code.co_name != "<module>":
            with self._lock:
                self.files.add(str(Path(name).relative_to(SOURCE)))


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


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        found = asyncio.run(weight_path(Path(scratch)))
    lines = sum(len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name in found)
    if sys.argv[1:] == ["--json"]:
        print(json.dumps({"files": len(found), "lines": lines, "names": found}))
    else:
        print("\n".join([*found, f"{len(found)} files, {lines} lines"]))


if __name__ == "__main__":
    main()
