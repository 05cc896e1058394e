"""Sessions of one task in both runs: which two are set side by side, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import Any

from etude.core.trace.entry import Entry
from etude.core.trace.tail import SessionTail
from etude.evaluate.report.compare.align import AlignedRow, align, parts_at, steps_of
from etude.evaluate.report.query.tables import sessions

# What a session changed in the end, as a patch's lines by file.
#
# A bench run keeps `<session>.patch` next to the session: that is the whole truth. Otherwise the edits of the
# session's tools are added up: an edit within what an earlier one wrote becomes part of it, what was put back
# vanishes. Edits by shell commands are not seen then, and a fragment's place in its file is not known.


PAIRS = (("old", "new"), ("old_string", "new_string"), ("old_str", "new_str"))
WHOLE = ("contents", "content", "file_text")
PLACES = ("path", "file_path", "filename")


@dataclass
class Fragment:
    """`old` became `new`; `old` is None where the file was written whole."""

    old: str | None
    new: str


def final_patch(path: Path, entries: Sequence[Entry]) -> list[str]:
    """The lines, empty if nothing was changed."""
    kept = path.with_suffix(".patch")
    if kept.is_file():
        return kept.read_text(encoding="utf-8", errors="replace").splitlines()
    lines: list[str] = []
    for name, fragments in sorted(net(entries).items()):
        lines.append(f"=== {name}")
        for fragment in fragments:
            body = unified_diff((fragment.old or "").splitlines(), fragment.new.splitlines(), lineterm="", n=3)
            lines += [line for line in body if not line.startswith(("---", "+++", "@@"))]
    return lines


def net(entries: Sequence[Entry]) -> dict[str, list[Fragment]]:
    """By file what its edits came to, in the order of first touch; files whose edits cancel out are left out."""
    files: dict[str, list[Fragment]] = {}
    for name, old, new in _edits(entries):
        fragments = files.setdefault(name, [])
        if old is None:
            fragments[:] = [Fragment(None, new)]
        else:
            _apply(fragments, old, new)
    kept = {name: [f for f in fragments if f.old != f.new] for name, fragments in files.items()}
    return {name: fragments for name, fragments in kept.items() if fragments}


def _apply(fragments: list[Fragment], old: str, new: str) -> None:
    inside = next((f for f in fragments if old and old in f.new), None)
    if inside is not None:
        inside.new = inside.new.replace(old, new, 1)
        return
    around = [f for f in fragments if f.new and f.new in old and f.old is not None]
    before = old
    for fragment in around:  # the edit covers what an earlier one wrote: it starts from what stood there first
        before = before.replace(fragment.new, fragment.old or "", 1)
        fragments.remove(fragment)
    fragments.append(Fragment(before, new))


def _edits(entries: Sequence[Entry]) -> Iterator[tuple[str, str | None, str]]:
    """(file, old or None, new) of every call that edited and did not fail."""
    failed = {e.data.get("call_id") for e in entries if e.type == "tool_result" and e.data["failed"]}
    for entry in entries:
        for call in (entry.data.get("message") or {}).get("calls", []) if entry.type == "completion" else []:
            if call["id"] not in failed:
                yield from _of_call(call["arguments"])


def _of_call(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    name = next((arguments[key] for key in PLACES if isinstance(arguments.get(key), str)), None)
    if name is None:
        return
    edits = arguments.get("edits")
    for one in [arguments, *(edits if isinstance(edits, list) else [])]:
        if isinstance(one, Mapping):
            for old, new in PAIRS:
                if isinstance(one.get(old), str) and isinstance(one.get(new), str):
                    yield name, one[old], one[new]
    for key in WHOLE:
        if isinstance(arguments.get(key), str):
            yield name, None, arguments[key]


SessionRow = Mapping[str, Any]
MOST_OPTIONS = 24  # sessions of one task that a pair is chosen from, on each side
PatchLine = tuple[str, str]  # "a", "b" or "both", and the line


@dataclass(frozen=True)
class Pair:
    """The same task, attempted in A and in B: rows as `query.sessions` has them."""

    task_id: str
    a: SessionRow
    b: SessionRow

    @property
    def apart(self) -> float:
        """How far the results lie apart: what a reader wants to see first."""
        return abs(float(self.a.get("score") or 0.0) - float(self.b.get("score") or 0.0))


@dataclass(frozen=True)
class SessionPair:
    """A pair read in full."""

    pair: Pair
    rows: list[AlignedRow]
    patch: list[PatchLine]

    @property
    def parts_at(self) -> int | None:
        return parts_at(self.rows)

    def to_json(self) -> dict[str, Any]:
        kinds = [row.kind for row in self.rows]
        return {
            "task_id": self.pair.task_id,
            **{f"{side}_{key}": row.get(key) for side, row in (("a", self.pair.a), ("b", self.pair.b)) for key in ("file", "score", "turns", "end")},
            "steps": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
            "parts_at_step": None if self.parts_at is None else self.parts_at + 1,
            "patch_equal": all(side == "both" for side, _ in self.patch),
        }  # fmt: skip


def pairs(a: Path, b: Path) -> list[Pair]:
    """One pair for each task that both runs kept sessions of, the furthest apart first. Demonstrations are left out."""
    ours, theirs = _by_task(a), _by_task(b)
    found = [_closest(task, ours[task], theirs[task]) for task in ours if task in theirs]
    return sorted(found, key=lambda pair: (-pair.apart, pair.task_id))


def read(a: Path, b: Path, pair: Pair) -> SessionPair:
    """Both sessions aligned, both patches against each other."""
    one, other = a / pair.a["file"], b / pair.b["file"]
    ours, theirs = SessionTail(one).read(), SessionTail(other).read()
    rows = align(steps_of(ours), steps_of(theirs))
    return SessionPair(pair, rows, list(against(final_patch(one, ours), final_patch(other, theirs))))


def against(a: list[str], b: list[str]) -> Iterator[PatchLine]:
    """The lines of two patches, each with the side it is of."""
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (("both", line) for line in a[a0:a1])
            continue
        yield from (("a", line) for line in a[a0:a1])
        yield from (("b", line) for line in b[b0:b1])


def _by_task(run: Path) -> dict[str, list[SessionRow]]:
    found: dict[str, list[SessionRow]] = {}
    for row in sessions(run):
        if row["task_id"] and row.get("recipe.stage") != "sessions":
            found.setdefault(row["task_id"], []).append(row)
    return found


def _closest(task: str, ours: list[SessionRow], theirs: list[SessionRow]) -> Pair:
    """Same stage, policy and place in its group before all; then results that differ."""
    same = ("recipe.stage", "policy", "recipe.policy", "effort", "recipe.member", "recipe.pass")
    options = [Pair(task, a, b) for a in ours[:MOST_OPTIONS] for b in theirs[:MOST_OPTIONS]]
    likeness = lambda pair: sum(pair.a.get(key) == pair.b.get(key) for key in same[:4])
    place = lambda pair: sum(pair.a.get(key) == pair.b.get(key) for key in same[4:])
    return max(options, key=lambda pair: (likeness(pair), pair.apart, place(pair)))
