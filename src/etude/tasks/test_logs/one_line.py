"""Runners that say a test and how it went on one line of its own: a pattern with the groups `word` and `name`, and what the words mean.

The patterns are those lines as `swebench` 5.0.2 takes them, quirks included (a name with a time in it, a nested Go test that is taken like
an outer one): a row's lists of tests were made with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from etude.tasks.test_logs.log import FAILED, PASSED, SKIPPED, Reader, RunLog, Statuses

_TIME = r"\d+\s*m?s"


def one_line(
    pattern: str, words: Mapping[str, str], name_of: Callable[[str, str], str] = lambda name, word: name
) -> Reader:
    """A reader of stripped lines that the pattern matches from their beginning. Words it doesn't know are passed over."""
    compiled = re.compile(pattern)

    def read(log: RunLog) -> Statuses:
        found: Statuses = {}
        for line in log.lines:
            if (match := compiled.match(line.strip())) and match["word"] in words:
                found[name_of(match["name"], match["word"])] = words[match["word"]]
        return found

    return read


def _without_place(name: str, word: str) -> str:
    """redis' failures end in ` in FILE`."""
    return re.sub(r"\s+in\s+\S+$", "", name) if word == "err" else name


def _stripped(name: str, _word: str) -> str:
    return name.strip()


_PASS_FAIL = {"PASS": PASSED, "FAIL": FAILED}

gotest = one_line(r"--- (?P<word>PASS|FAIL|SKIP): (?P<name>.+) \((.+)\)$", {**_PASS_FAIL, "SKIP": SKIPPED})
cargo = one_line(r"test\s+(?P<name>\S+)\s+\.\.\.\s+(?P<word>\w+)$", {"ok": PASSED, "FAILED": FAILED})
ant = one_line(r"\[junit\]\s+\[(?P<word>PASS|FAIL|ERR)\]\s+(?P<name>.*)$", {**_PASS_FAIL, "ERR": FAILED})
jq = one_line(r"(?P<word>PASS|FAIL):\s(?P<name>.+)$", _PASS_FAIL)
tap = one_line(r"(?P<word>ok|not ok) (\d+) (?P<name>.+)$", {"ok": PASSED, "not ok": FAILED})
micropython = one_line(r"(?P<word>pass|FAIL|skip)\s+(?P<name>.+)$", {"pass": PASSED, "FAIL": FAILED, "skip": SKIPPED})
googletest = one_line(r".*\[\s*(?P<word>OK|FAILED)\s*\]\s(?P<name>.*)\s\(.*\)$", {"OK": PASSED, "FAILED": FAILED})
redis = one_line(
    rf"\[(?P<word>ok|err|skip|ignore)\]:\s(?P<name>.+?)(?:\s\(({_TIME})\))?$",
    {"ok": PASSED, "err": FAILED, "skip": SKIPPED, "ignore": SKIPPED},
    _without_place,
)
jest = one_line(
    rf"(?P<word>✓|✕|○)\s(?P<name>.+?)(?:\s\(({_TIME})\))?$", {"✓": PASSED, "✕": FAILED, "○": SKIPPED}, _stripped
)
jest_json = one_line(r"\[(?P<word>PASSED|FAILED)\]\s(?P<name>.+)$", {"PASSED": PASSED, "FAILED": FAILED})
vitest = one_line(
    r"(?P<word>✓|×|↓)\s(?P<name>.+?)(?:\s(\d+\s*m?s?|\[skipped\]))?$", {"✓": PASSED, "×": FAILED, "↓": SKIPPED}
)
minitest = one_line(r"(?P<name>.+)\. .*=.*(?P<word>\.|F|E).*$", {".": PASSED, "F": FAILED, "E": FAILED})
cucumber = one_line(r"(?P<name>.*) \.+(?P<word>\.|F)", {".": PASSED, "F": FAILED})
ruby_unit = one_line(
    r"(?:test: )?(?P<name>.+):\s+(?P<word>\.|E\b|F\b|O\b)", {".": PASSED, "E": FAILED, "F": FAILED, "O": SKIPPED}
)
rspec = one_line(r"(?P<name>.+) - (?P<word>passed|failed)", {"passed": PASSED, "failed": FAILED})
