"""Writes `data/swebench_decisions.jsonl`: `python tests/tasks/importers/swebench_record.py PYTHON`, a venv's that has `swebench` and unidiff."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from swebench_logs import PARSERS, drawn

HERE = Path(__file__).parent
DECISIONS = HERE / "data" / "swebench_decisions.jsonl"
OF = 400  # number of drawn cases of a parser; of each kind of decision one is kept, and the richest of all


def asked(python: str, cases: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The version of the package, and what it decides."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([python, str(HERE / "swebench_oracle.py")], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
    version, *decided = map(json.loads, done.stdout.splitlines())
    return version["version"], decided


def main(python: str) -> None:
    kept: list[str] = []
    for parser in PARSERS:
        cases = [drawn(parser, seed) for seed in range(OF)]
        version, decided = asked(python, cases)
        ranked = sorted(zip(cases, decided, strict=True), key=lambda pair: _richness(*pair))
        by_kind = {_kind(word): (case, word) for case, word in ranked} | {"richest": ranked[-1]}
        kept += [
            json.dumps({"swebench": version, **case, "decided": word}, ensure_ascii=False)
            for number, (case, word) in enumerate(by_kind.values())
            if (case, word) not in list(by_kind.values())[:number]
        ]
    DECISIONS.write_text("\n".join(kept) + "\n", encoding="utf-8")


def _kind(decided: dict[str, Any]) -> str:
    if "error" in decided:
        return "error"
    return f"{decided['patch_successfully_applied']} {decided['resolved']} {decided['infra_failure']}"


def _richness(case: dict[str, Any], decided: dict[str, Any]) -> int:
    return 100 * len(set(decided.get("statuses", {}).values())) - len(case["log"]) // 20


if __name__ == "__main__":
    main(sys.argv[1])
