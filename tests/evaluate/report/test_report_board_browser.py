"""The board in a real browser: every page opens without a script error, keys do all, a phone fits, a session's text stays text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.session import Recorder
from etude.core.trace.writer import write_session
from etude.evaluate.report.board.server import Board, in_background
from etude.evaluate.report.settings import ReportSettings
from etude.evaluate.report.write import write_report

pytestmark = pytest.mark.nightly
PAGES = (
    "overview",
    "curves",
    "groups",
    "rollouts",
    "pareto",
    "fleet",
    "weights",
    "cheats",
    "corpus",
    "rollout/0",
    "rollout/7",
)
EVIL = "</pre><img src=x onerror=window.hurt=1><script>window.hurt=1</script>"


@pytest.fixture
def board(tmp_path: Path, make_run: Callable[..., Path]) -> Iterator[Board]:
    make_run(tmp_path, groups=12)
    recorder = Recorder(SessionHeader("s", task_id=EVIL))
    root = recorder.append("message", {"role": "user", "text": EVIL}, tokens=EntryTokens([0, 1], 2))
    said = {"message": {"role": "assistant", "text": EVIL, "calls": []}}
    recorder.append("completion", said, parent=root, tokens=EntryTokens([2, 1], 0, [-0.5, -0.1], [0, 0]))
    recorder.append("tool_result", {"call_id": None, "name": "edit", "text": EVIL, "failed": False})
    folder = tmp_path / "rl" / "sessions" / "step-000"
    folder.mkdir()
    write_session(folder / "000000-0.jsonl", recorder.session)
    found = Board(tmp_path)
    thread = in_background(found)
    yield found
    found.close()
    thread.join(20)


@pytest.fixture
def page(board: Board, chromium: ModuleType) -> Iterator[Any]:
    with chromium.browser() as browser:
        tab = browser.page()
        tab.size(1280, 900)
        tab.open(board.url)
        tab.wait(
            "document.body?.dataset.ready && document.getElementById('live').textContent.includes('following')", 60
        )
        yield tab
        assert tab.errors == []


def go(page: Any, name: str) -> None:
    page.run(f"location.hash = '#/{name}'")
    page.wait("document.querySelector('main h1')", 30)


def assert_every_page_fits(page: Any, width: int) -> None:
    page.size(width, 844, mobile=width < 500)
    for name in PAGES:
        go(page, name)
        page.wait(f"document.body.dataset.page === '{'rollouts' if name.startswith('rollout') else name}'")
        assert page.run("document.querySelector('.failure') === null"), name
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_opens_and_fits_its_width(page: Any, width: int) -> None:
    assert_every_page_fits(page, width)


def test_everything_can_be_named_by_who_cannot_see_it(page: Any) -> None:
    script = """[...document.querySelectorAll('a, button, input, select, canvas, [role=listbox]')].filter((one) =>
      !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)"""
    for name in PAGES:
        go(page, name)
        assert page.run(script) == [], name


def test_the_browser_is_worked_by_keys_alone(page: Any) -> None:
    page.press("4")
    page.wait("document.querySelector('.list [role=option]')")
    for _ in range(3):
        page.press("j")
    page.press("k")
    assert page.run("document.querySelector('[aria-selected=true]').id") == "row-2"
    assert page.run("document.querySelector('.list').getAttribute('aria-activedescendant')") == "row-2"
    page.press("/")
    for key in "summaries>0":
        page.press(key)
    page.wait("document.querySelector('[role=status].muted:not(#live)').textContent.startsWith('12 of 48')")
    page.press("Enter")
    page.press("Enter")
    page.wait("document.querySelector('.strip')")
    first = page.run("location.hash")
    assert page.run("document.querySelectorAll('.strip').length") == 2
    page.press("j")
    page.wait(f"location.hash !== {json.dumps(first)} && document.querySelector('.strip')")
    page.press("k")
    page.wait(f"location.hash === {json.dumps(first)}")
    page.press("Escape")
    page.wait("location.hash === '#/rollouts' && document.querySelector('.list')")
    page.press("?")
    page.wait("document.getElementById('keys').open")
    page.press("Escape")
    page.wait("!document.getElementById('keys').open")
    page.press("3")
    page.wait("document.querySelector('.matrix canvas')")
    page.press("ArrowRight")
    page.wait("document.querySelector('.reading a')")


def test_the_filter_says_what_it_does_not_know_with_near_names(page: Any) -> None:
    script = """Promise.all([import('/static/filter.js'), import('/static/app.js')]).then(([{ compile }, { board }]) => {
      const count = (text) => { const found = compile(text, board.data); let n = 0;
        for (let row = 0; row < board.data.length; row += 1) n += found.test(row); return found.error ?? n; };
      return ['', 'solved', 'failed', '-solved', 'level=one-bug', 'category:bug -tool:edit', 'group>=10', 'advantge>0', 'turns:many',
        'task>a', 'repeated', 'faults:sandboxlost', 'member=3 summaries=1'].map(count);
    })"""
    every, solved, failed, not_solved, level, odd, late, near, number, word, repeated, faults, cut = page.run(script)
    assert every == 48 and solved + failed == 48 and not_solved == failed
    assert level == 12 and late == 8 and 0 <= odd < 24 and repeated == faults == 2 and cut == 12
    assert near == "no field advantge; did you mean advantage?"
    assert "is a number" in number and "is a word" in word


def test_a_session_s_text_runs_nothing(page: Any) -> None:
    go(page, "rollout/0")
    page.wait("document.querySelector('.transcript article')")
    page.press("]")
    assert page.run("window.hurt === undefined && document.querySelector('main img, main script') === null")
    assert page.run("document.querySelector('.transcript').textContent.includes('onerror')")


def test_what_a_run_writes_appears_without_a_reload(page: Any, board: Board, make_run: Callable[..., Path]) -> None:
    page.press("4")
    page.wait("document.querySelector('.list [role=option]')")
    page.run("window.stays = true")
    make_run(board.run, groups=16)
    page.wait("document.getElementById('live').textContent.startsWith('64 attempts')")
    page.wait("document.querySelector('[role=status].muted:not(#live)').textContent.startsWith('64 of 64')")
    assert page.run("window.stays === true")


def test_only_what_is_in_sight_is_in_the_document(page: Any, board: Board, make_run: Callable[..., Path]) -> None:
    make_run(board.run, groups=300)
    page.wait("document.getElementById('live').textContent.startsWith('1,200 attempts')", 60)
    page.press("4")
    page.wait("document.querySelector('.list [role=option]')")
    assert page.run("document.querySelectorAll('[role=option]').length") < 80
    page.press("End")
    page.wait("document.querySelector('#row-1199[aria-selected=true]')")


@pytest.fixture
def still(tmp_path: Path, make_run: Callable[..., Path], chromium: ModuleType) -> Iterator[Any]:
    """The one-file report, opened from the disk."""
    make_run(tmp_path, groups=12)
    settings = ReportSettings(rollouts=20)  # pyright: ignore[reportCallIssue]
    write_report(tmp_path, settings)
    with chromium.browser() as browser:
        tab = browser.page()
        tab.size(1280, 900)
        tab.open((tmp_path / "report.html").as_uri())
        tab.wait("document.body?.dataset.ready", 60)
        yield tab
        assert tab.errors == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_one_file_report_has_every_page_without_a_server(still: Any, width: int) -> None:
    assert_every_page_fits(still, width)
    assert (
        still.run("performance.getEntriesByType('resource').filter((one) => !one.name.startsWith('data:')).length") == 0
    )


def test_the_one_file_report_is_worked_by_keys_and_says_what_it_left_out(still: Any) -> None:
    still.press("4")
    still.wait("document.querySelector('.list [role=option]')")
    assert "this file holds 20 in full" in still.run("document.querySelector('main').textContent")
    still.press("/")
    for key in "here":
        still.press(key)
    still.wait("document.querySelector('[role=status].muted:not(#live)').textContent.startsWith('20 of 48')")
    still.press("Enter")
    still.press("Enter")
    still.wait("document.querySelector('.strip canvas')")
    assert still.run("document.querySelector('main').textContent").count("trainer − sampler") >= 1
    still.press("Escape")
    still.wait("document.querySelector('.list')")
    still.press("/")
    for key in " -here":  # the filter still has `here`: both together leave nothing
        still.press(key)
    still.wait("document.querySelector('[role=status].muted:not(#live)').textContent.startsWith('0 of 48')")


def test_a_section_is_reached_by_its_address_from_any_page(still: Any) -> None:
    still.run("location.hash = '#what-it-cost'")
    still.wait("document.body.dataset.page === 'overview' && document.getElementById('what-it-cost')")
    still.wait("document.getElementById('what-it-cost').getBoundingClientRect().top < innerHeight")
