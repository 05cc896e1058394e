"""Reward files and printed tests as scripts leave them, rightly and wrongly, drawn by a seed; and where the tools' decisions on them lie.

`python tests/tasks/importers/terminal_cases.py PYTHON`, a venv's that has `harbor` and `terminal-bench`, writes them again.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DECISIONS = HERE / "data" / "terminal_decisions.jsonl"
JSON_FILES = (
    "1", "0", "0.5", "-3", "7", "1e309", "-1e309", "NaN", "Infinity", "true", "null", '"1"', '"NaN"', "", " ", "{}", "[]", "[1]", "1 2", "{",
    "1e-400",    '{"reward": 1}', '{"reward": 0.25, "speed": 3}', '{"reward": NaN}', '{"reward": 1e309}', '{"reward": true}', '{"reward": null}',
    '{"reward": "1"}', '{"reward": [1]}', '{"reward": {"a": 1}}', '{"reward": 1, "reward": 0}', '{"score": 1}', '{"reward": 1, "x": "y"}',
    '{"reward": 1, "x": Infinity}', "\ufeff1", " 1 \n", '{"reward": 1}\n{"reward": 1}', "9" * 400, '{"reward": 1}garbage', "0x1", "1_0",
)  # fmt: skip
TEXT_FILES = (
    "1",
    "0",
    "0.5\n",
    "1.0\r\n",
    "nan",
    "inf",
    "-inf",
    "1e309",
    "",
    " ",
    "\n",
    "1 0",
    "one",
    "1,0",
    "1_0",
    "0x1",
    "true",
    "+1",
    ".5",
    "١",
)
RAW = (b"\xff\xfe1", b"1\x00", b"\x80")
SUMMARY = (
    "PASSED {n}",
    "FAILED {n} - assert 1 == 2",
    "FAILED {n}",
    "FAILED {n} - a - b",
    "ERROR {n}",
    "SKIPPED [1] {n}: why",
    "XFAIL {n} - x",
)
SUMMARY += (
    "XPASS {n}",
    "PASSED",
    "UNKNOWN {n}",
    "",
    "2 passed in 0.1s",
    "PASSED: {n}",
    "  PASSED {n}",
    "== short test summary info ==",
    "passed {n}",
)
NAMES = (
    "t.py::test_a",
    "tests/t.py::TestB::test_c[x - y]",
    "test_plain",
    "a.py::",
    "t.py::test_a[1]",
    "/tests/x.py::y::z",
)
BLOCKS = {
    "swebench": ("SWEBench results starts here", "SWEBench results ends here", "PASSED", "FAILED", "noise", "PASSED "),
    "sweperf": ("SWE-Perf results starts here", "SWE-Perf results ends here", "PASSED", "FAILED", "noise"),
    "mlebench": ("MLEBench results starts here", "MLEBench results ends here", "ALL TESTS PASSED", "noise"),
    "swelancer": ("SWE Lancer success", "swe lancer failure", "user_tool", "completed", "noise"),
}


def cases() -> list[dict[str, Any]]:
    """The same ones each time."""
    found: list[dict[str, Any]] = []
    for data in (*(text.encode() for text in JSON_FILES), *RAW):
        found.append({"reward.json": _coded(data)})
    for data in (*(text.encode() for text in TEXT_FILES), *RAW):
        found.append({"reward.txt": _coded(data)})
    found += [
        {},
        {"reward.json": _coded(b"oops"), "reward.txt": _coded(b"1")},
        {"reward.json": _coded(b"0"), "reward.txt": _coded(b"1")},
    ]
    rng = random.Random(7)
    for _ in range(60):
        lines = [rng.choice(SUMMARY).format(n=rng.choice(NAMES)) for _ in range(rng.randrange(6))]
        head = ["collected 3 items", "PASSED early.py::not_counted"] + ["==== short test summary info ===="] * (
            rng.random() < 0.9
        )
        found.append({"parser": "pytest", "printed": "\n".join(head + lines)})
    for parser, words in BLOCKS.items():
        for _ in range(15):
            drawn = [rng.choice(words) for _ in range(rng.randrange(5))]
            whole = [words[0], *drawn, words[1]] if rng.random() < 0.5 else drawn
            found.append({"parser": parser, "printed": "\n".join(whole)})
    return found


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def asked(python: str, cases: list[dict[str, Any]]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The tools' versions, and what they decide."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([python, str(HERE / "terminal_oracle.py")], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
    versions, *decided = map(json.loads, done.stdout.splitlines())
    return versions, decided


def main(python: str) -> None:
    versions, decided = asked(python, cases())
    rows = [{**versions, **case, "decided": word} for case, word in zip(cases(), decided, strict=True)]
    DECISIONS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
