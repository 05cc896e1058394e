"""Where a bench run keeps what. Everything that `report.json` says follows from these files.

conditions.json       what was asked of whom under which conditions; a run under others is refused
policies/<key>.jsonl  one `Outcome` a line, appended as its attempt ends; <key> is `<policy>@<effort>[+<agent>]`
usage.jsonl           one line a turn that cost tokens, retried and lost tries included: what the bill says
faults.jsonl          attempts that could not be made, for reasons of ours; asked again by the next run
sessions/<key>/       <task>-<pass>.jsonl as any session, and <task>-<pass>.patch, what the agent changed
judgements.jsonl      what judges decided, and what it cost; judged.json, pairs.json: the totals
audit.jsonl           what the last audit found; recall.jsonl, contamination.json: probes of what models knew before
machine.json          machine and versions; timings.json: wall and core seconds by key. Neither is part of report.json
events.jsonl          progress, for the live view
"""

from __future__ import annotations

from etude.core.files import append_lines, replace_file
import os
import re
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a policy: it names files


@dataclass(frozen=True)
class RunFolder:
    """Paths below `root`."""

    root: Path

    @property
    def conditions(self) -> Path:
        return self.root / "conditions.json"

    @property
    def usage(self) -> Path:
        return self.root / "usage.jsonl"

    @property
    def faults(self) -> Path:
        return self.root / "faults.jsonl"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def machine(self) -> Path:
        return self.root / "machine.json"

    @property
    def timings(self) -> Path:
        return self.root / "timings.json"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    @property
    def page(self) -> Path:
        return self.root / "report.html"

    def outcomes(self, key: str) -> Path:
        return self.root / "policies" / f"{key}.jsonl"

    def session(self, key: str, task_id: str, number: int) -> Path:
        return self.root / "sessions" / key / f"{task_id.replace('/', '-')}-{number}.jsonl"


def key_of(policy: str, effort: str, agent: str = "") -> str:
    """How a policy at an effort is called in files and tables; `agent`: another than our own harness."""
    return f"{policy}@{effort}" + (f"+{agent}" if agent else "")


def replace_text(path: Path, text: str) -> None:
    """Give a file of the results this text as a whole; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file of the results; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_lines(path, line.encode() + b"\n", durable=False)
