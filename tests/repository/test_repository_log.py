"""Each page of docs/log answers one question, with verdict, command and date at its top, and the index links each page once."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "docs" / "log"
INDEX = LOG / "index.md"
PAGES = sorted(page for page in LOG.glob("*.md") if page != INDEX)
HEAD = re.compile(
    r"# (?P<title>[^\n]+)\n\n- \*\*Verdict:\*\* (?P<verdict>.+?)\n- \*\*Command:\*\* (?P<command>.+?)\n- \*\*Date:\*\* (?P<date>[^\n]+)\n",
    re.DOTALL,
)
ROW = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<page>[\w-]+\.md)\) \| (?P<verdict>[^|]+) \| (?P<date>[^|]+) \|$")
LONGEST = 200


def head(page: Path) -> dict[str, str]:
    found = HEAD.match(page.read_text(encoding="utf-8"))
    assert found is not None, f"{page.name} does not begin with a title, **Verdict:**, **Command:** and **Date:**"
    return {name: " ".join(text.split()) for name, text in found.groupdict().items()}


def period(text: str) -> tuple[date, date]:
    """First and last day of `2026-11-21` or `2026-11-21 to 2026-11-24`."""
    first, _, last = text.partition(" to ")
    return date.fromisoformat(first), date.fromisoformat(last or first)


def rows() -> list[list[re.Match[str]]]:
    """The rows of each table of the index, area by area."""
    areas = INDEX.read_text(encoding="utf-8").split("\n## ")[1:]
    return [[found for line in area.splitlines() if (found := ROW.match(line))] for area in areas]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_question_as_title_and_a_verdict_a_command_and_a_date(page: Path) -> None:
    fields = head(page)
    assert fields["title"].endswith("?")
    first, last = period(fields["date"])
    assert date(2026, 11, 1) <= first <= last


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) < LONGEST


def test_the_index_links_every_page_exactly_once() -> None:
    linked = [row["page"] for area in rows() for row in area]
    assert sorted(linked) == [page.name for page in PAGES]


def test_the_index_has_the_titles_and_dates_of_the_pages_in_order_of_time() -> None:
    for area in rows():
        assert area, "an area without a row"
        days = [date.fromisoformat(row["date"]) for row in area]
        assert days == sorted(days)
        for row in area:
            fields = head(LOG / row["page"])
            assert (row["title"], row["date"]) == (fields["title"], period(fields["date"])[0].isoformat())


@pytest.mark.parametrize(
    "text", ["November", "2026-13-01", "2026-11-31", "2026-11-21 to now", "2026-11-21 and 2026-11-22"]
)
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        period(text)
