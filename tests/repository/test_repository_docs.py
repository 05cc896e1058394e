"""The pages and benchmarks of the repository name only what exists: files, folders and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A module (`rl/window.py`, below src/etude) or a path of the repository (`tests/rl`, `docs/rl.md`) in backticks. Names in capitals are placeholders.
PATHS = re.compile(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|c|h)|(?:src|tests|docs|benchmarks|recipes)/[\w./-]+)`")
# A source file without its folder (`listing_filter.py`), which only the whole tree can hold.
BARE = re.compile(r"`([\w-]+\.(?:py|c|h))`")
TREE = {
    path.name
    for folder in ("src", "tests", "benchmarks", ".ci")
    for path in (ROOT / folder).rglob("*.*")
    if path.suffix in (".py", ".c", ".h")
}
# Files of a repository that an agent works in.
FOREIGN = {"json.py", "pip.py"}
# Files of tasks that a page describes, and placeholders.
ELSEWHERE = re.compile(r"^tests/(?:test\.sh|hidden\.json)$|NAME|STAGE")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [
        path
        for path in sorted(set(PATHS.findall(page.read_text(encoding="utf-8"))))
        if not any((base / path).exists() for base in (ROOT, ROOT / "src" / "etude", page.parent))
        and not ELSEWHERE.search(path)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    assert sorted(set(BARE.findall(page.read_text(encoding="utf-8"))) - TREE - FOREIGN) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_holds_both_sides_of_a_merge(page: Path) -> None:
    assert re.findall(r"^(?:<{7}|>{7}|\|{7})(?: .*)?$", page.read_text(encoding="utf-8"), re.MULTILINE) == []


def test_every_path_that_a_benchmark_joins_below_tests_exists() -> None:
    """Benchmarks share helpers with tests through paths, which neither pyright nor the import contract sees."""
    joined = [
        (script.name, "/".join(re.findall(r'"([^"]+)"', parts)))
        for script in sorted((ROOT / "benchmarks").rglob("*.py"))
        for parts in re.findall(r'"tests"(?: / "[\w.-]+")+', script.read_text(encoding="utf-8"))
    ]
    assert joined and [name for name in joined if not (ROOT / name[1]).exists()] == []
