"""Debian's patches: description and diff kept in the series' order, people left out, and a reason for each that is not taken."""

from __future__ import annotations

from etude.core.licence.licence import Licence
from etude.learn.corpus.record import TextRecord
from etude.learn.corpus.shape.patches import parse_patch, patch_records, series

DIFF = "--- a/tally.c\n+++ b/tally.c\n@@ -1 +1 @@\n-int x;\n+long x;\n"
DEP3 = f"""Description: Count beyond 2^31
 The counter overflowed on long files.
 .
 Seen with the archive's own logs.
Author: Some Body <body@example.org>
 and Another <a@example.org>
Bug-Debian: https://bugs.example.org/1234
Forwarded: not-needed
Last-Update: 2024-01-01
---
This line is no description.
{DIFF}"""
MAIL = f"""From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001
From: Some Body <body@example.org>
Date: Mon, 1 Jan 2024 00:00:00 +0000
Subject: [PATCH 2/3] Read the last line
 also without its end

Without it, the count was one short.
Note: files from elsewhere.

Signed-off-by: Some Body <body@example.org>
---
 tally.c | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/tally.c b/tally.c
{DIFF}--{" "}
2.39.2
"""


def test_dep3_headers_give_the_description_and_no_person() -> None:
    description, diff = parse_patch(DEP3)
    assert description == (
        "Count beyond 2^31\nThe counter overflowed on long files.\n\nSeen with the archive's own logs.\n\nBug: https://bugs.example.org/1234"
    )
    assert diff == DIFF


def test_a_mail_gives_its_subject_and_body_and_no_person() -> None:
    description, diff = parse_patch(MAIL)
    assert description == (
        "Read the last line\nalso without its end\n\nWithout it, the count was one short.\nNote: files from elsewhere."
    )
    assert diff == f"diff --git a/tally.c b/tally.c\n{DIFF}"


def test_free_text_before_the_diff_is_a_description_too() -> None:
    assert parse_patch(f"# Fix the build on hurd.\n{DIFF}") == ("Fix the build on hurd.", DIFF)
    assert parse_patch(DIFF) == ("", DIFF)


def test_the_series_names_order_and_options() -> None:
    assert series("# first\nb.patch -p1\n\na.patch # why\n") == ["b.patch", "a.patch"]


def test_patches_become_records_in_order_and_the_rest_has_a_reason() -> None:
    files = {
        "debian/patches/series": "b.patch\na.patch\ngone.patch\nbare.patch\nempty.patch\nlong.patch\n",
        "debian/patches/a.patch": DEP3,
        "debian/patches/b.patch": MAIL,
        "debian/patches/bare.patch": DIFF,
        "debian/patches/empty.patch": "Description: nothing\n",
        "debian/patches/long.patch": DEP3 + "+x\n" * 1000,
        "debian/patches/unused.patch": DEP3,
    }
    like = TextRecord("x", "file", "debian", "tally", "1.2-1", "2024-01-01", "a.c", "c", Licence("MIT", "dep5"))
    found, refused = patch_records(files, like, longest_chars=2000)
    assert [record.path for record in found] == ["debian/patches/b.patch", "debian/patches/a.patch"]
    assert found[1].text.startswith("Count beyond 2^31\n") and found[1].text.endswith(DIFF)
    assert (found[0].kind, found[0].language, found[0].project, found[0].licence) == (
        "patch",
        "diff",
        "tally",
        like.licence,
    )
    assert [(path.rpartition("/")[2], reason) for path, reason in refused] == [
        ("gone.patch", "named in the series but not there"),
        ("bare.patch", "no description"),
        ("empty.patch", "no diff"),
        ("long.patch", "longer than 2000 characters"),
    ]
    assert patch_records({}, like) == ([], [])
