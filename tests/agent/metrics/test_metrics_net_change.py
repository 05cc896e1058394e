"""The size of a session's change, from its edit entries alone, is that of its files' first and last texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etude.agent.metrics.net_change import NetChange
from etude.core.trace.change import TextChange

# Lines that differ: where a file says the same line twice, two diffs of it may be of different size and both be right.
TEXTS = st.none() | st.lists(st.integers(0, 12), unique=True, max_size=8).map(lambda n: "".join(f"{i}\n" for i in n))
EDITS = st.lists(st.tuples(st.sampled_from(["a", "b"]), TEXTS), max_size=8)


def net_change(
    start: dict[str, str | None], edits: list[tuple[str, str | None]]
) -> tuple[NetChange, dict[str, str | None]]:
    change, now = NetChange(), dict(start)
    for number, (path, text) in enumerate(edits):
        if now[path] != text:
            change.edit(number, TextChange(path, now[path], text).to_entry("c"))
            now[path] = text
    return change, now


@given(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS}), EDITS)
def test_the_sum_of_edits_is_the_difference_of_the_ends(
    start: dict[str, str | None], edits: list[tuple[str, str | None]]
) -> None:
    change, now = net_change(start, edits)
    whole = [TextChange(path, start[path], now[path]) for path in start if start[path] != now[path]]
    files, added, removed = change.size()
    assert change.paths == sorted(one.path for one in whole)
    assert files == len(whole)
    assert added - removed == sum(one.added - one.removed for one in whole)
    least = [_least(start[one.path] or "", now[one.path] or "") for one in whole]
    assert sum(a for a, _ in least) <= added <= sum(len((now[one.path] or "").split("\n")) for one in whole)
    assert sum(r for _, r in least) <= removed


def _least(old: str, new: str) -> tuple[int, int]:
    """Lines that only one side has: no diff is smaller."""
    return len(set(new.split("\n")) - set(old.split("\n"))), len(set(old.split("\n")) - set(new.split("\n")))


@given(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS}), EDITS, st.integers(0, 8))
def test_an_undo_is_as_if_the_edits_had_never_been(
    start: dict[str, str | None], edits: list[tuple[str, str | None]], kept: int
) -> None:
    whole, _ = net_change(start, edits)
    part, _ = net_change(start, edits[:kept])
    whole.undo(list(range(kept, len(edits))))
    assert (whole.size(), whole.paths) == (part.size(), part.paths)


def test_edits_far_apart_in_a_long_file_are_distinguished() -> None:
    old = "".join(f"line {i}\n" for i in range(1000))
    new = old.replace("line 10\n", "ten\nand more\n")
    newer = new.replace("line 990\n", "")
    change, _ = net_change({"a": old}, [("a", new), ("a", newer), ("a", newer.replace("and more\n", ""))])
    assert change.size() == (1, 1, 2)
    again, _ = net_change({"a": old}, [("a", new), ("a", newer), ("a", old)])
    assert again.size() == (0, 0, 0)


def test_entries_without_the_lines_that_went_are_counted_as_they_stand() -> None:
    """Of sessions recorded before `gone`: a line that came back is one that went and one that came."""
    change = NetChange()
    for number, (before, after) in enumerate([("x\ny\n", "x\nz\n"), ("x\nz\n", "x\ny\n")]):
        entry = TextChange("a", before, after).to_entry("c")
        for hunk in entry["hunks"]:
            del hunk["gone"]
        change.edit(number, entry)
    assert change.size() == (1, 1, 1)
