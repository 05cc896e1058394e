"""Runs the driver, kills what the plan says by process id, and starts the driver again with the same words when it ends too early."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from killing.plan import Kill
from killing.points import FOLDER
from killing.victims import Process, read_processes, victims

LOOK_S = 0.02
FIND_S = 90.0  # a victim of some kind turns up within a start of the run
WINDOW_S = 25.0
HANG_S = 300.0  # without a step: the run hangs, however busy the machine is
ENDED_BY = (
    "controller",
    "raylet",
    "gcs",
)  # whose death the run may answer by ending with a word that running again goes on
UNEXPECTED = 5  # ends that no kill caused; the run stops after more of them


@dataclass
class Done:
    """A kill as it happened. `doing`: the victim's title and the ledger's last entry."""

    number: int
    kind: str
    point: str | None
    pid: int
    unix_s: float
    step: int
    doing: str


@dataclass
class Story:
    """What the run went through. `trained`: unix seconds at which each step's entry was first seen; `ends`: lives that ended too early."""

    kills: list[Done] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    trained: dict[int, float] = field(default_factory=dict)
    began_unix_s: float = 0.0
    ended_unix_s: float = 0.0
    whole: bool = False


class Over(Exception):
    """The run is at its end, or there is no point in going on."""


class Monkey:
    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        folder: Path,
        side: Path,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        """`folder`: the run's; `side`: for logs, windows and the story."""
        self.command, self.environment, self.folder, self.side, self.say = command, environment, folder, side, say
        self.windows = side / "windows"
        self.windows.mkdir(parents=True, exist_ok=True)
        self.story = Story()
        self._rng = random.Random(seed + 1)
        self._last = "nothing"  # of the ledger
        self._read = 0
        self._moved_s = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._life = 0
        self._born_unix_s = 0.0

    def run(self, kills: list[Kill], limit_s: float = float("inf")) -> Story:
        """Continues to the run's own end. Kills no process after `limit_s`."""
        self.story.began_unix_s = time.time()
        try:
            self._start()
            for kill in kills:
                if time.time() - self.story.began_unix_s > limit_s:
                    self.story.missed.append(f"{kill.number} and all after it: time was up")
                    break
                self._execute(kill)
            while True:
                self._pass(1.0)
        except Over as over:
            self.say(str(over))
        finally:
            self.story.ended_unix_s = time.time()
            self._write()
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        return self.story

    def _execute(self, kill: Kill) -> None:
        while len(self.story.trained) < kill.step:
            self._pass(LOOK_S)
        self._find(kill.kind)
        self._pass(kill.delay_s)
        if kill.point is not None and self._in_window(kill):
            return
        while not self._blow(kill, self._rng.choice(self._find(kill.kind)), None):
            self._pass(LOOK_S)  # it ended by itself: commands are short

    def _find(self, kind: str) -> list[Process]:
        until_s = time.monotonic() + FIND_S
        while True:
            assert self._process is not None
            if found := victims(read_processes(), self._process.pid).get(kind):
                return found
            if time.monotonic() > until_s:
                self._ask_where_it_stands(f"no {kind} turned up in {FIND_S:g} s")
                until_s = time.monotonic() + FIND_S
            self._pass(LOOK_S / 4)

    def _in_window(self, kill: Kill) -> bool:
        """Whether somebody came to the window in time, and was killed there."""
        arm = self.windows / f"arm-{kill.point}"
        arm.touch()
        until_s = time.monotonic() + WINDOW_S
        while time.monotonic() < until_s:
            for came in self.windows.glob(f"at-{kill.point}-*"):
                pid = int(came.name.rpartition("-")[2])
                came.unlink()
                one = read_processes().get(pid)
                if one is not None and self._blow(kill, one, kill.point):
                    return True
            self._pass(LOOK_S / 4)
        arm.unlink(missing_ok=True)
        self.story.missed.append(f"{kill.number}: no process came to {kill.point}")
        return False

    def _blow(self, kill: Kill, one: Process, point: str | None) -> bool:
        """Whether it was still there to be killed."""
        self._look()
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        done = Done(
            kill.number,
            kill.kind,
            point,
            one.pid,
            time.time(),
            len(self.story.trained),
            f"{one.title} | {self._last}",
        )
        self.story.kills.append(done)
        self.say(f"kill {done.number} at step {done.step}: {done.kind} {done.pid} {point or ''} {done.doing}")
        self._write()
        return True

    def _pass(self, seconds: float) -> None:
        """Time passes; the run is watched meanwhile."""
        until_s = time.monotonic() + seconds
        while True:
            self._look()
            self._mind()
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, LOOK_S))

    def _look(self) -> None:
        """What is new in the ledger. A torn line is cut off by the next life, so only whole ones are read."""
        path = self.folder / "ledger.jsonl"
        if not path.exists():
            return
        with open(path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read += whole
        for line in data[:whole].splitlines():
            entry = json.loads(line)
            self._last = f"{entry['kind']} {entry.get('step', entry.get('group', ''))}".strip()
            if entry["kind"] == "trained" and entry["step"] not in self.story.trained:
                self.story.trained[entry["step"]] = time.time()
                self._moved_s = time.monotonic()

    def _mind(self) -> None:
        """The run's end, be it its own or ours; and that it moves."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            if time.monotonic() - self._moved_s > HANG_S:
                self._ask_where_it_stands(f"no step in {HANG_S:g} s")
                self.story.hangs.append(f"at step {len(self.story.trained)}: {self._last}")
                self._process.kill()
                self._moved_s = time.monotonic()
            return
        self._look()
        if code == 0:
            self.story.whole = True
            raise Over(f"the run ended by itself after {len(self.story.trained)} steps")
        self._ended(code)
        self._start()

    def _ended(self, code: int) -> None:
        log = self._log().read_text(errors="replace").splitlines()
        last = (
            next((line for line in reversed(log) if line.strip()), "") if code > 0 else ""
        )  # else it had no last word
        kill = self.story.kills[-1] if self.story.kills else None
        # A life ends by what happened in it: Ray may take a minute to notice that its head is gone.
        caused = [one for one in self.story.kills if one.unix_s >= self._born_unix_s and one.kind in ENDED_BY]
        after_s = time.time() - kill.unix_s if kill else None
        end = {"life": self._life, "rc": code, "said": last[:400], "caused": bool(caused), "after_s": after_s}
        end["by"] = caused[-1].kind if caused else (kill.kind if kill else None)
        self.story.ends.append(end)
        self.say(f"life {self._life} ended: {end}")
        if sum(not end["caused"] for end in self.story.ends) > UNEXPECTED:
            raise Over("the run stops again and again for no reason that was given to it")

    def _start(self) -> None:
        self._life += 1
        self._born_unix_s = time.time()
        for left in self.windows.iterdir():
            left.unlink()
        environment = os.environ | self.environment | {FOLDER: str(self.windows)}
        with open(self._log(), "wb") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment
            )
        self._moved_s = max(self._moved_s, time.monotonic())

    def _log(self) -> Path:
        return self.side / f"life-{self._life}.log"

    def _ask_where_it_stands(self, why: str) -> None:
        """Its stacks go to its log."""
        assert self._process is not None
        self.say(f"life {self._life}: {why}; its stacks are in {self._log().name}")
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)

    def _write(self) -> None:
        side = self.side / "story.tmp"
        side.write_text(json.dumps(asdict(self.story), indent=1) + "\n")
        side.rename(self.side / "story.json")
