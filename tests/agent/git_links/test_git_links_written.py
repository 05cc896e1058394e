"""Which lines a session wrote: its edits followed one after another, and found again in a commit by what they say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etude.agent.git_links.written import WrittenLines, attribute, is_short, written_lines
from etude.core.trace.change import TextChange, line_hash, split
from etude.core.trace.entry import Entry, EntryType, SessionHeader

HEADER = SessionHeader("s-1", policy="m", harness="h")
words = st.sampled_from(["alpha = one", "beta = two()", "gamma(three)", "return delta", "}", ""])
text = st.lists(words, max_size=10).map(lambda lines: "".join(f"{line}\n" for line in lines))


def entries(*edits: tuple[EntryType, dict]) -> list[Entry]:
    return [Entry(i, None, kind, 0.0, data) for i, (kind, data) in enumerate(edits)]


@given(texts=st.lists(text, min_size=2, max_size=5))
def test_lines_a_session_wrote_and_left_are_those_it_added_to_the_first_text(texts: list[str]) -> None:
    """However many steps it took: owned text is in the last text, and what was there first is not owned."""
    steps = [TextChange("f", a, b).to_entry("c") for a, b in zip(texts, texts[1:], strict=False)]
    found = written_lines(HEADER, entries(*(("edit", step) for step in steps)))
    last = [line_hash(line) for line in split(texts[-1])]
    owned = found.lines.get("f", [])
    rest = iter(last)
    assert all(line in rest for line in owned), "a subsequence of the last text's lines"
    assert len(last) - len(owned) <= len(split(texts[0]))


def test_an_undone_edit_and_a_deleted_file_leave_nothing() -> None:
    made = TextChange("a", None, "kept = 1\n").to_entry("c0")
    more = TextChange("b", None, "lost = 1\n").to_entry("c1")
    gone = TextChange("b", "lost = 1\n", None).to_entry("c2")
    assert written_lines(HEADER, entries(("edit", made), ("edit", more), ("edit", gone))).lines == {
        "a": [line_hash("kept = 1")]
    }
    undone = entries(("edit", made), ("edit", more), ("undo", {"edits": [0], "paths": ["a"], "by": "user"}))
    assert list(written_lines(HEADER, undone).lines) == ["b"]


def of(name: str, *lines: str) -> WrittenLines:
    return WrittenLines(name, "m", "h", {"f": [line_hash(line) for line in lines]})


def test_lines_belong_to_the_session_that_wrote_them_and_to_no_one_else() -> None:
    change = TextChange("f", "old = 0\n", "old = 0\nagent = 1\nperson = 2\nagent_too = 3  \n")
    spans = attribute(change, [of("s", "agent = 1", "agent_too = 3", "old = 0")])
    assert [(s.session_id, s.start_line, s.end_line, s.text) for s in spans] == [
        ("s", 2, 2, "agent = 1"),
        ("s", 4, 4, "agent_too = 3  "),
    ], "the line that was there before is not the session's, even if it wrote the same"


def test_later_sessions_come_first() -> None:
    spans = attribute(
        TextChange("f", None, "same_line = 1\n"), [of("first", "same_line = 1"), of("second", "same_line = 1")]
    )
    assert [s.session_id for s in spans] == ["second"]


def test_short_lines_count_only_next_to_a_telling_line_of_the_same_session() -> None:
    session = of("s", "if agent_said:", "}", "")
    assert is_short("    }") and is_short("") and not is_short("if agent_said:")
    spans = attribute(TextChange("f", None, "person wrote\n}\n\nif agent_said:\n}\n"), [session])
    assert [(s.start_line, s.end_line) for s in spans] == [(2, 5)]
    alone = attribute(TextChange("f", None, "person wrote\n}\nperson again\n"), [session])
    assert alone == []
