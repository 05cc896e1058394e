"""What a session changed in the end, as a patch's lines by file.

A bench run keeps `<session>.patch` next to the session: that is the whole truth. Otherwise the edits of the session's tools are
added up: an edit within what an earlier one wrote becomes part of it, what was put back vanishes. Edits by shell commands
are not seen then, and a fragment's place in its file is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from etude.core.trace.entry import Entry

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
