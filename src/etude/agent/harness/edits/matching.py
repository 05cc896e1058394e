"""Where the `old` text of an edit is in a file: an exact unique match, else a unique match of whole lines that differ
in blanks only. Pure; a failure says how many matches there were and shows the closest region.

The loose match replaces whole lines and moves the new text to the file's indentation (`indentation`); no other byte changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from etude.agent.harness.edits.indentation import relocate

# The closest region costs len(file) comparisons of `old`-sized windows; past this many lines the hint isn't worth it.
MAX_HINT_LINES = 2000
# difflib compares in time quadratic in the window: this many character pairs take about 0.3 s, in which no other session moves.
MAX_HINT_PAIRS = 50_000_000
# Beyond it only the windows that share most words with `old` are compared.
HINT_CANDIDATES = 8
# Compared while occurrences that overlap are counted, some 0.3 s.
MAX_OVERLAP_CHARS = 50_000_000
# Below this likeness (difflib ratio, 0..1) the "closest" region would only mislead.
MIN_HINT_RATIO = 0.5


class NoUniqueMatch(Exception):
    """`old` is nowhere in the file, or in several places. `hint` is the closest region with line numbers, or empty."""

    def __init__(self, matches: int, hint: str = "") -> None:
        self.matches = matches
        self.hint = hint
        super().__init__(f"{matches} matches" if matches else "no match")


@dataclass(frozen=True)
class Replacement:
    """The file after the edit; `loose` if the match was in blanks only approximate."""

    text: str
    loose: bool


def replace(text: str, old: str, new: str) -> Replacement:
    """Replace the one occurrence of `old`. Raises NoUniqueMatch and CantTranslate."""
    count = count_occurrences(text, old)
    if count == 1:
        return Replacement(text.replace(old, new), loose=False)
    if count > 1:
        raise NoUniqueMatch(count)
    lines = text.split("\n")
    wanted = [squeeze(line) for line in old.strip("\n").split("\n")]
    squeezed = [squeeze(line) for line in lines]
    starts = [i for i in range(len(lines) - len(wanted) + 1) if squeezed[i : i + len(wanted)] == wanted]
    if len(starts) != 1 or not any(wanted):
        raise NoUniqueMatch(len(starts) if any(wanted) else 0, "" if starts else closest(lines, wanted))
    start = starts[0]
    stop = start + len(wanted)
    quoted, fresh = old.strip("\n").split("\n"), new.strip("\n").split("\n") if new else []
    moved = relocate(lines[start:stop], quoted, fresh, lines)
    return Replacement("\n".join([*lines[:start], *moved, *lines[stop:]]), loose=True)


def closest(lines: list[str], wanted: list[str], max_lines: int = MAX_HINT_LINES) -> str:
    """`number line` rows of the window most like `wanted` (squeezed lines); empty if nothing is like it."""
    if not any(wanted) or len(lines) > max_lines:
        return ""
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2("\n".join(wanted))
    best, best_ratio = -1, MIN_HINT_RATIO
    squeezed = [squeeze(line) for line in lines]
    for start in _candidates(squeezed, wanted):
        matcher.set_seq1("\n".join(squeezed[start : start + len(wanted)]))
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = start, ratio
    if best < 0:
        return ""
    return "\n".join(f"{best + i + 1} {line}" for i, line in enumerate(lines[best : best + len(wanted)]))


def _candidates(lines: list[str], wanted: list[str]) -> list[int]:
    """Where to look closely: everywhere if that is cheap, else where most words of `wanted` stand, and nowhere if even that is dear."""
    starts = range(max(1, len(lines) - len(wanted) + 1))
    pairs = sum(len(line) + 1 for line in wanted) ** 2
    if len(starts) * pairs <= MAX_HINT_PAIRS:
        return list(starts)
    words = {word for line in wanted for word in line.split()}
    sums = [0]
    for line in lines:
        sums.append(sums[-1] + len(words.intersection(line.split())))
    shared = [sums[min(start + len(wanted), len(lines))] - sums[start] for start in starts]
    most = min(HINT_CANDIDATES, MAX_HINT_PAIRS // pairs)
    return sorted(sorted(starts, key=lambda start: -shared[start])[:most])


def count_occurrences(text: str, old: str) -> int:
    """Occurrences, overlapping ones counted each: `aa` is in `aaa` twice, so it names no one place. Of a long text that repeats
    itself very often, as many as are found within a bound."""
    count, at = 0, text.find(old)
    while at >= 0 and count * len(old) <= MAX_OVERLAP_CHARS:
        count, at = count + 1, text.find(old, at + 1)
    return count


def squeeze(line: str) -> str:
    """A line whose blanks don't count: runs as one, none at its ends."""
    return " ".join(line.split())
