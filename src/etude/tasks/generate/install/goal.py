"""A goal: a command, what its output is like when the project is set up right, and how a rule tells that.

Stage one of the two (Composer 2 technical report): ten of these are proposed by somebody who only reads the repository; three are drawn, and
somebody else has to make them behave. Free descriptions are for people and for a judge; `pattern`, `status` and `share` are what rules go by.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

# The lines of a failed command's output that say why it failed, before those that only say that it did. Pure.


MOST_LINES, MOST_CHARS, LONGEST_LINE = 3, 600, 220
_CAUSES = re.compile(
    r"fatal error: |: No such file or directory|^E\s+\w*(Error|Exception)\b|\b\w*Error: |Cannot find (module|package)|"
    r"command not found|: not found$|No module named|npm (ERR!|error) (?!A complete log|errno)|ERROR: |unable to detect version|"
    r"Multiple top-level|requires a different Python|No matching distribution|EACCES|ENOTFOUND|ETIMEDOUT|ERR_[A-Z_]+|"
    r"error TS\d+|undefined: |cannot find package|panic: ",
)
_EMPTY = re.compile(
    r"subprocess-exited-with-error|legacy-install-failure|metadata-generation-failed|failed with exit (code|status)|ERR_TEST_FAILURE|"
    r"This error originates|ELIFECYCLE|code: 'ERR|testCodeFailure|did not run successfully"
)


def cause(text: str, end: int = 200) -> str:
    """At most MOST_LINES of such lines, in order, then the last `end` characters of the text where they say more; MOST_CHARS in all."""
    lines = [" ".join(line.split())[:LONGEST_LINE] for line in text.splitlines()]
    found = [line for line in lines if _CAUSES.search(line) and not _EMPTY.search(line)]
    chosen = list(dict.fromkeys(found))[:MOST_LINES]
    last = " ".join(text.split())[-end:]
    if not chosen:
        return " ".join(text.split())[-2 * end :]
    return "; ".join([*chosen, *([] if chosen[-1] in last or last in chosen[-1] else [f"at the end: {last}"])])[
        :MOST_CHARS
    ]


TEN, THREE = 10, 3
SHARE = 0.5  # of the tests that ran; a few always ask for a network, a locale, a terminal
# pytest, jest, mocha, tap, node's own reporter and bun: "12 passed", "Tests: 1 failed, 12 passed", "12 passing", "# pass 12", "12 pass".
_N = r"(?<!\d)(\d{1,9})(?!\d)"  # a count; more digits are none, and are skipped without looking at each of them again
_GOOD = re.compile(rf"{_N} pass(?:ed|ing)\b|^# pass\s{{1,9}}{_N}|^[ \t]{{0,99}}{_N} pass$", re.MULTILINE)
_BAD = re.compile(
    rf"(?<![:.]){_N} (?:failed|failing|errors?)\b|^# fail\s{{1,9}}{_N}|^[ \t]{{0,99}}{_N} fail$", re.MULTILINE
)
_JASMINE = re.compile(rf"^{_N} specs?, {_N} failures?", re.MULTILINE)
_CARGO = re.compile(rf"^test result: \w+\. {_N} passed; {_N} failed", re.MULTILINE)  # one a binary
_MAVEN = re.compile(  # the last is the sum
    rf"Tests run: {_N}, {{1,9}}Failures: {_N}, {{1,9}}Errors: {_N}(?:, Skipped: {_N})?"
)
_GO = re.compile(r"^(?:(ok  )|(FAIL))\t\S", re.MULTILINE)  # one a package
_NETWORK = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|EHOSTUNREACH)\b|socket hang up|fetch failed|Name or service not known"
    r"|Temporary failure in name resolution|Could not resolve host|Network is unreachable|NewConnectionError"
)
SHOWN = 160  # characters of a command in a reason
MOST_LINE, HEAD, TAIL = 300, 10_000, 20_000  # characters in which a pattern is looked for: it may be a model's


@dataclass(frozen=True)
class Goal:
    """`command` runs under /bin/sh in the workdir. `tests`: it is the project's own suite, of which SHARE must pass, whatever its status;
    `pattern`: must be found in the output."""

    command: str
    description: str
    pattern: str = ""
    status: int | None = 0
    tests: bool = False

    @property
    def short_command(self) -> str:
        """The command as a reason quotes it: a suite may name hundreds of files."""
        if len(self.command) <= SHOWN:
            return f"`{self.command}`"
        start = self.command[:SHOWN].rpartition(" ")[0] or self.command[:SHOWN]
        return f"`{start} …` ({len(self.command) - len(start)} more characters)"

    def objection(self, rc: int, output: str) -> str:
        """Why the output is not the described one; empty if it is."""
        if self.status is not None and rc != self.status:
            return f"{self.short_command} ended with status {rc}, not {self.status}: {_end(output)}"
        if self.pattern and not re.search(self.pattern, _looked_at(output)):
            note = network_note(output) if self.tests else ""
            return (
                f"{self.short_command} printed nothing like {self.pattern!r} ({self.description}): {note}{_end(output)}"
            )
        if self.tests and rc != 0:
            good, bad = counts(output)
            if good < SHARE * (good + bad) or not good:
                return f"{self.short_command}: {good} tests passed, {bad} did not: {network_note(output)}{_end(output)}"
        return ""


def choose_goals(goals: Sequence[Goal], seed: str) -> list[Goal]:
    """Three, drawn by `seed`; a test command is among them wherever there is one."""
    draw = random.Random(f"goals {seed}")
    suites = [goal for goal in goals if goal.tests]
    first = [draw.choice(suites)] if suites else []
    rest = [goal for goal in goals if goal not in first]
    return first + draw.sample(rest, min(THREE - len(first), len(rest)))


def counts(output: str) -> tuple[int, int]:
    """Tests that passed and that did not, by the summary of their runner; of go, which counts none, packages."""
    if binaries := _CARGO.findall(output):
        return sum(int(good) for good, _ in binaries), sum(int(bad) for _, bad in binaries)
    if specs := _JASMINE.findall(output):
        run, failed = (int(one) for one in specs[-1])
        return run - failed, failed
    if sums := _MAVEN.findall(output):
        run, failed, erred, skipped = (int(one or 0) for one in sums[-1])
        return run - failed - erred - skipped, failed + erred
    if packages := _GO.findall(output):
        return sum(bool(good) for good, _ in packages), sum(bool(bad) for _, bad in packages)
    return _last(_GOOD, output), _last(_BAD, output)


def network_note(output: str) -> str:
    """Whether tests failed for want of a network, in words that begin a reason; empty if not."""
    asks = _NETWORK.search(output) is not None
    return "its tests ask the network, or a server, which a sandbox does not have: " if asks else ""


def _looked_at(output: str) -> str:
    text = output if len(output) <= HEAD + TAIL else f"{output[:HEAD]}\n{output[-TAIL:]}"
    return "\n".join(line[:MOST_LINE] for line in text.split("\n"))


def _last(pattern: re.Pattern[str], output: str) -> int:
    found = pattern.findall(output)
    return int(next(filter(None, found[-1]))) if found else 0


def _end(output: str) -> str:
    return cause(output) or "no output"
