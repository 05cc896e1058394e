"""`report.html`: the board as one file. The page, its styles and its script stand in it, and so do the answers that a server would give.

What a reader wants first is plain markup, so that the overview and every section of the report read without scripts, on paper, and
by search; the script makes pages of them and adds the others. It is named by its hash: a browser runs nothing else, whatever a
session's text holds. Nothing is fetched.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.evaluate.report.advisories.collect import advisories
from etude.evaluate.report.advisories.shown import advisories_html, anchor
from etude.evaluate.report.board.bundle import bundle
from etude.evaluate.report.board.page_data import PageData, as_json, pack, read_page_data
from etude.evaluate.report.board.sections import Sections
from etude.evaluate.report.settings import ReportSettings

ENTRY = "app.js"
STYLES = ("plot.css", "page.css")  # board.css comes after
LINKS = re.compile(r'<link rel="stylesheet".*?<script[^>]*></script>', re.DOTALL)  # of the served page


def static_page(run: Path, settings: ReportSettings | None = None) -> str:
    """The whole document, from the run's files; without `settings` with those of its recipe and the usual room.

    What can't be read is named at the top of the page."""
    content = Sections(run, settings).read()
    held = read_page_data(run, settings or ReportSettings())  # pyright: ignore[reportCallIssue]
    warned = advisories_html([advisory.to_json() for advisory in advisories(run)], list(content["sections"]))
    return document(content, warned, held)


def document(content: Mapping[str, Any], warned: str, held: PageData) -> str:
    """The page around `content` (the result of `Sections.read`); `warned` is markup."""
    static = {path.name: path.read_text() for path in (files("etude.evaluate.report.board") / "static").iterdir()}
    styles = [*((files("etude.evaluate.report") / name).read_text() for name in STYLES), static["board.css"]]
    script = bundle({name: text for name, text in static.items() if name.endswith(".js")}, ENTRY)
    run = {"title": content["title"], "problems": content["problems"] | held.problems}
    held.packed |= {"run": pack(as_json(run)), "advisories": pack(as_json({"html": warned}))}
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{"".join(styles)}</style>'
    tail = (
        f'<script type="application/json" id="held">{held.document()}</script><script type="module">{script}</script>'
    )
    page = static["board.html"]
    for pattern, text in {
        LINKS: head,
        re.compile("<title>.*?</title>"): f"<title>{escape(content['title'])}</title>",
        re.compile('(<main id="main" tabindex="-1">)(</main>)'): _content(content, warned),
        re.compile("<noscript>.*?</noscript>"): "",
        re.compile("</body>"): tail + "</body>",
    }.items():
        page = _fill(page, pattern, text)
    return page


def _content(content: Mapping[str, Any], warned: str) -> str:
    """Title, advisories, what was found, and every section: what there is without the script."""
    names = content["sections"]
    links = "".join(f'<a href="#{anchor(name)}">{escape(name)}</a>' for name in names)
    sections = "".join(
        f'<section data-name="{escape(name)}"><h2 id="{anchor(name)}">{escape(name)}</h2>'
        f'<div class="fragment">{fragment}</div></section>'
        for name, fragment in names.items()
    )
    return (
        f'<h1>{escape(content["title"])}</h1>{warned}<div data-part="lead">{content["lead"]}</div>'
        f'<nav class="contents" aria-label="Contents">{links}</nav>{sections}'
    )


def _fill(page: str, pattern: re.Pattern[str], text: str) -> str:
    """`page` with the one place of `pattern` filled."""
    found = list(pattern.finditer(page))
    if len(found) != 1:
        raise ValueError(f"board.html has {len(found)} places for {pattern.pattern!r}, not one")
    groups = found[0].groups()
    before, after = (groups[0], groups[1]) if groups else ("", "")
    return page[: found[0].start()] + before + text + after + page[found[0].end() :]
