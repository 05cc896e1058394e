"""What a commit's message says of the change stays, and nothing of its handling reaches a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.generate.generators.changelog import request_text
from etude.tasks.generate.generators.debian import describe_patch
from etude.tasks.generate.generators.history import Commit, facts_of
from etude.tasks.generate.generators.request_text import request_of, without_references

SUBJECT = "Keep empty rows in views"
BODY = "The reader dropped them: a row of 0 columns was taken for the end.\nIt now reads on, as `--all` does."
WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ", min_size=2, max_size=9)
PEOPLE = st.tuples(WORDS, WORDS).map(lambda two: f"{two[0]} {two[1]} <{two[0]}@example.org>")
NUMBERS = st.integers(1, 99_999)
URLS = st.tuples(WORDS, NUMBERS).map(
    lambda two: f"https://{two[0].lower()}.example.org/{two[0]}/session_{two[1]}?x=1#y"
)
ISSUES = st.one_of(
    NUMBERS.map(lambda n: f"#{n}"), NUMBERS.map(lambda n: f"GH-{n}"), NUMBERS.map(lambda n: f"owner/repo.x#{n}"), URLS
)
TRAILERS = st.one_of(
    st.tuples(st.sampled_from(("Signed-off-by", "Co-authored-by", "Reviewed-by", "Tested-by")), PEOPLE).map(": ".join),
    st.tuples(st.sampled_from(("Closes", "Fixes", "fixes:", "Refs", "Resolves:", "See", "Closes issue")), ISSUES).map(
        " ".join
    ),
    st.tuples(WORDS, WORDS, WORDS).map(lambda t: f"{t[0]}-{t[1]}: {t[2]}"),
    st.tuples(WORDS, URLS).map(lambda t: f"{t[0]}-Session: {t[1]}"),
    NUMBERS.map(lambda n: f"Change-Id: I{n:040x}"),
    NUMBERS.map(lambda n: f"(cherry picked from commit {n:040x})"),
    st.tuples(URLS, NUMBERS).map(lambda t: f"git-svn-id: {t[0]}@{t[1]} 5c0e-11"),
    URLS,
    WORDS.map(lambda word: f"Cc: {word}@example.org,\n {word}2@example.org"),
)
BLOCKS = st.lists(st.lists(TRAILERS, min_size=1, max_size=4).map("\n".join), max_size=3)


@given(BLOCKS, st.one_of(st.just(""), ISSUES.map(lambda one: f" ({one})")), st.booleans())
def test_trailers_go_and_every_sentence_stays(blocks: list[str], reference: str, with_body: bool) -> None:
    parts = [SUBJECT + reference, *([BODY] if with_body else []), *blocks]
    wanted = "\n\n".join([SUBJECT, *([BODY] if with_body else [])])
    assert request_of("\n\n".join(parts)) == wanted
    assert request_of("\r\n\r\n".join(part.replace("\n", "\r\n") for part in parts)) == wanted


@given(st.sampled_from(("Signed-off-by: A <a@example.org>", "Closes #12", "X-Session: https://x.example.org/s")))
def test_a_known_trailer_goes_from_the_middle_too(trailer: str) -> None:
    assert request_of(f"{SUBJECT}\n\n* one part\n{trailer}\n\n* another part") == (
        f"{SUBJECT}\n\n* one part\n\n* another part"
    )


@given(st.text(max_size=200))
def test_a_request_is_read_from_any_text_and_is_its_own_request(text: str) -> None:
    once = request_of(text)
    assert "Signed-off-by:" not in request_of(f"{SUBJECT}\n\n{text}\n\nSigned-off-by: A <a@example.org>")
    assert len(once) <= len(text)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Fixes #12: handle views", "handle views"),
        ("Handle None, refs #12, GH-13 and owner/repo#4.", "Handle None."),
        ("Handle it as discussed in https://chat.example.org/archives/C1/p2.", "Handle it."),
        ("See https://x.example.org/z for details. It works now.", "It works now."),
        ("Use [the docs](https://x.example.org/y) for it", "Use the docs for it"),
        ("[PATCH v2 1/3] Keep 3 rows", "Keep 3 rows"),
        ("gh-123: keep 3 rows", "keep 3 rows"),
        ("fix: x (closes: #1; see also PR #2)", "fix: x"),
        ("Tests for db.query() method, refs #290", "Tests for db.query() method"),
        ("Keep rows (#1)\n\n* Keep them\n\n---------\n\nCo-authored-by: A <a@example.org>", "Keep rows\n\n* Keep them"),
        ("Fix #123", ""),
    ],
)  # fmt: skip
def test_references_go_from_a_sentence(said: str, left: str) -> None:
    assert request_of(said) == left


@pytest.mark.parametrize(
    "said",
    [
        "Fix UTF-8 names and SHA-256 sums",
        "fix(cli): handle page 3 of 12 rows",
        "Add C# and &#123; to the list",
        "Accept `http://[::1]/` as a host",
        "Get 'https://x.example.org' right",
        "bug: parse drops rows",
        "Read more\n\nNote: this keeps rows.",
        "Read more\n\nBefore: 1\nAfter: 2",
        "Read more\n\nAPI: the function now returns rows of the table",
        "Read more\n\n    x = {'a': 1}  # two blanks",
    ],
)
def test_what_only_looks_like_handling_stays(said: str) -> None:
    assert request_of(said) == said


def test_a_squashed_goal_has_no_trailer_in_any_part() -> None:
    texts = ("Keep rows (#1)", f"{SUBJECT} (GH-2)\n\n{BODY}\n\nClaude-Session: https://x.example.org/session_1")
    facts = facts_of([Commit(str(n), ("p",), "a", request_of(text)) for n, text in enumerate(texts)])
    assert (facts.headline, facts.expected, facts.notes) == (SUBJECT, BODY, ("Keep rows",))


def test_a_patch_and_a_changelog_say_no_link_either() -> None:
    patch = (
        "Description: keep rows (Closes: #12)\n Rows of 0 columns stay.\n .\n Bug: https://x.example.org/1\n--- a/m\n"
    )
    assert describe_patch(patch) == ("keep rows", "Rows of 0 columns stay.")
    assert request_text("Keep the empty rows, see www.example.org/1 (GH-12)") == "Keep the empty rows"


@pytest.mark.parametrize("unit", ["in ", "see ", "#1 ", "(", " ", "fixes ", "[](", "K-V: x\n"])
def test_a_long_message_is_read_whatever_it_repeats(unit: str) -> None:
    without_references(f"{unit * 1_000} #1")
    request_of(f"x\n\n{unit * 1_000}#1")


def test_a_line_of_blanks_between_words_is_read_at_once() -> None:
    for blank in (" ", "\t", "\u2003"):
        assert request_of("Fix 1" + blank * 100_000 + "x").split() == ["Fix", "1", "x"]
        assert without_references("(#1" + blank * 100_000 + ", see") != ""


def test_of_a_line_that_no_person_writes_the_first_part_is_read() -> None:
    assert len(request_of("Fix it\n\n" + "see #1 and," * 20_000)) < 2_100
