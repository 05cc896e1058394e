"""The processes of a run by what they are, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The zygote of sandboxes and all that it bore, whose command lines are copies of its own.
ZYGOTE = ("-P", "-s", "-S", "-B", "-c")
ENGINES = ("ray::EngineProcess", "ray::VllmProcess")
# The program that runs vLLM, and what vLLM calls those that it starts: its engine's core, and that one's worker.
VLLM, VLLM_TITLE = "etude_vllm_serve.py", "VLLM::"


@dataclass(frozen=True)
class Process:
    """One line of /proc. `space`: its pid namespace; `inner`: its id in there."""

    pid: int
    parent: int
    state: str
    words: tuple[str, ...]
    space: str
    inner: int

    @property
    def title(self) -> str:
        """What it says of itself; Ray's workers name the method that they are at."""
        return " ".join(self.words)[:80]


def kind_of(one: Process, run: Process) -> str | None:
    """The kind of `one`, a descendant of `run`. None: no plan kills such a process (Ray's monitor, its dashboard, its idle workers)."""
    first = one.words[0] if one.words else ""
    if one.space != run.space:
        return "sandbox" if one.inner == 1 else "command"
    if first.endswith("/gcs_server"):
        return "gcs"
    if first.endswith("/raylet"):
        return "raylet"
    if first.startswith(ENGINES):
        return "engine"
    if first.startswith(VLLM_TITLE) or any(word.endswith(VLLM) for word in one.words[:2]):
        return "vllm"
    if first.startswith("ray::TrainerProcess"):
        return "trainer"
    if "etude.agent.code_index.process" in one.words:
        return "index"
    if first.startswith("ray::HostActor"):
        return "host"
    if one.words[1:6] == ZYGOTE:
        return "zygote"
    return None


def below(processes: Mapping[int, Process], root: int) -> list[Process]:
    """The living descendants of `root`, without it."""
    children: dict[int, list[Process]] = {}
    for one in processes.values():
        children.setdefault(one.parent, []).append(one)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        here = children.get(waiting.pop(), [])
        found += [one for one in here if one.state != "Z"]
        waiting += [one.pid for one in here]
    return found


def victims(processes: Mapping[int, Process], root: int) -> dict[str, list[Process]]:
    """By kind; the run itself is the controller."""
    run = processes.get(root)
    if run is None or run.state == "Z":
        return {}
    found: dict[str, list[Process]] = {"controller": [run]}
    for one in below(processes, root):
        kind = kind_of(one, run)
        if kind is not None:
            found.setdefault(kind, []).append(one)
    return found


def read_processes() -> dict[int, Process]:
    """Every process that can be read now."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                one = _read(int(name))
            except (OSError, IndexError, StopIteration):  # it ended while it was read
                continue
            found[one.pid] = one
    return found


def _read(pid: int) -> Process:
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    words = tuple((folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
    space = os.readlink(folder / "ns" / "pid") if fields[0] != "Z" else ""
    inner = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("NSpid:"))
    return Process(pid, int(fields[1]), fields[0], words, space, int(inner.split()[-1]))
