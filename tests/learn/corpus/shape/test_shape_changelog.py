"""Changelogs as projects write them: the right section between two versions, and nothing that only mentions one."""

from __future__ import annotations

import pytest

from etude.learn.corpus.shape.changelog import changelog_section

MARKDOWN = """# Changelog

## [Unreleased]
- soon

## [1.2.0] - 2024-03-01
### Added
- since 1.1 we count
1.1 was different, see 1.0

## [1.1.0] - 2024-02-01
- eleven

## 1.0
- first
"""
UNDERLINED = """History
=======

1.2 (2024-03-01)
----------------

* Two.

1.1.0
-----
* Eleven.
"""
SPHINX = """.. _changes:

Version 1.2
===========
Two.

Version 1.1
===========
Eleven.
"""
DEBIAN = """tally (1.2-1) unstable; urgency=medium

  * New release 1.2.

 -- Somebody  Fri, 01 Mar 2024 00:00:00 +0000

tally (1.1-1) unstable; urgency=low

  * Eleven.
"""
OLDEST_FIRST = """* 1.0 *
one

* 1.1 *
eleven

* 1.2 *
two
"""
DEBIAN_END = " -- Somebody  Fri, 01 Mar 2024 00:00:00 +0000"
GNU = """* Noteworthy changes in release 1.2 (2024-03-01) [stable]

** Two.

* Noteworthy changes in release 1.1 (2024-02-01) [stable]
"""
PLAIN = """v1.2
two

v1.1
eleven
"""


@pytest.mark.parametrize(
    ("path", "text", "old", "new", "first", "last"),
    [
        ("CHANGELOG.md", MARKDOWN, "1.1", "1.2", "## [1.2.0] - 2024-03-01", "1.1 was different, see 1.0"),
        ("docs/changes.md", MARKDOWN, "1.0.0", "v1.2.0", "## [1.2.0] - 2024-03-01", "- eleven"),
        ("CHANGELOG.md", MARKDOWN, "1.1.9", "1.2.0", "## [1.2.0] - 2024-03-01", "1.1 was different, see 1.0"),
        ("HISTORY.rst", UNDERLINED, "1.1", "1.2", "1.2 (2024-03-01)", "* Two."),
        ("CHANGES.txt", SPHINX, "1.1", "1.2", "Version 1.2", "Two."),
        (
            "debian/changelog",
            DEBIAN,
            "1.1-1",
            "1.2-1",
            "tally (1.2-1) unstable; urgency=medium",
            " -- Somebody  Fri, 01 Mar 2024 00:00:00 +0000",
        ),
        ("NEWS", OLDEST_FIRST, "1.0", "1.2", "* 1.1 *", "two"),
        ("NEWS", OLDEST_FIRST, "1.1", "1.2", "* 1.2 *", "two"),
        ("NEWS", GNU, "1.1", "1.2", "* Noteworthy changes in release 1.2 (2024-03-01) [stable]", "** Two."),
        (
            "debian/changelog",
            DEBIAN.replace("(", "(1:"),
            "1:1.1-1",
            "1:1.2-1",
            "tally (1:1.2-1) unstable; urgency=medium",
            DEBIAN_END,
        ),
        ("ReleaseNotes.md", PLAIN, "1.1", "1.2", "v1.2", "two"),
    ],
)
def test_the_section_runs_from_the_new_heading_to_the_old_one(
    path: str, text: str, old: str, new: str, first: str, last: str
) -> None:
    section = changelog_section({path: text, "README.md": MARKDOWN}, old, new).split("\n")
    assert (section[0], section[-1]) == (first, last)


def test_a_version_that_is_only_mentioned_has_no_section() -> None:
    assert changelog_section({"CHANGELOG.md": MARKDOWN}, "1.0", "1.3") == ""
    assert (
        changelog_section(
            {"NEWS": "We think that 1.2 is good.\nPython 3.8 is needed for 1.2 and later.\n"}, "1.1", "1.2"
        )
        == ""
    )
    assert changelog_section({"core.py": MARKDOWN}, "1.1", "1.2") == ""


def test_the_changelog_nearest_the_root_comes_first() -> None:
    texts = {"sub/CHANGELOG.md": "## 1.2\nsub\n", "NEWS": "1.2\n---\nroot\n"}
    assert changelog_section(texts, "1.1", "1.2") == "1.2\n---\nroot"
