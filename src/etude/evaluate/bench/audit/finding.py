"""What the auditor wrote of one pass: a line of `audit.jsonl`. It holds no score, and changes none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from etude.core.files import replace_file
from etude.evaluate.bench.audit.tripwire import Flag

NAME = "audit.jsonl"
# flagged: a tripwire, or a judge that saw cheating. clean: read, and nothing found. unread: there is no session to read.
Status = Literal["flagged", "clean", "unread"]


@dataclass(frozen=True)
class AuditFinding:
    """`judged`: the judge's choice, None where it was not asked or stayed silent (`silent` says why)."""

    key: str  # policy@effort
    task_id: str
    attempt: int
    status: Status
    flags: tuple[Flag, ...] = ()
    surprising: tuple[str, ...] = ()
    judged: str | None = None
    reason: str = ""
    silent: str = ""
    unread: str = ""  # why it could not be read

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "wires": sorted({flag.wire for flag in self.flags})}


def write_findings(folder: Path, findings: Iterable[AuditFinding]) -> Path:
    """`audit.jsonl`, whole or not at all: an audit is of all passes that lie there."""
    path = folder / NAME
    text = "".join(json.dumps(one.to_json(), ensure_ascii=False) + "\n" for one in findings)
    replace_file(path, text)
    return path


def read_findings(folder: Path) -> list[AuditFinding]:
    """The last audit of a bench run's folder; empty if there was none. Raises ValueError naming the line."""
    path = folder / NAME
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else [], 1):
        try:
            row = json.loads(line)
            row.pop("wires")  # the names of its flags, for readers of the file
            flags, why = tuple(Flag(**flag) for flag in row.pop("flags")), tuple(row.pop("surprising"))
            found.append(AuditFinding(flags=flags, surprising=why, **row))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"{path}:{number} is no finding of an audit ({error}); run `etude bench audit` again"
            ) from error
    return found
