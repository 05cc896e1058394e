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
from etude.evaluate.report.board.page_data import PageData, as_json, pack, read_page_data
from etude.evaluate.report.board.sections import Sections
from etude.evaluate.report.settings import ReportSettings

# The board's modules as one script, for a stand-alone page: a browser loads no modules from next to a file.
#
# Each module becomes a function that returns what it exports, in the order in which they need each other; the last
# one, the page's own, stays open. The modules keep to a few forms of `import` and `export`, all on one line; another
# form is refused.


IMPORT = re.compile(r'^import \{ (\w+(?:, \w+)*) \} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
EXPORTED = re.compile(r"^export \{ (\w+(?:, \w+)*) \};$", re.MULTILINE)
OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class Unbundled(ValueError):
    """A module of a form that can't become part of one script."""


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """`modules`: text by name (`dom.js`); `entry` is run last. Raises Unbundled, KeyError for a module that is not there."""
    parts = [_module(name, modules[name], last=name == entry) for name in _ordered(modules, entry)]
    script = "".join(parts)
    if "</script" in script.lower() or "<!--" in script:
        raise Unbundled("a module holds what ends or hides a script in a page: </script or <!--")
    return script


def _ordered(modules: Mapping[str, str], entry: str) -> list[str]:
    """Needed ones first."""
    done: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise Unbundled(f"modules need each other in a circle: {' > '.join([*path, name])}")
        if name not in done:
            for _, needed in IMPORT.findall(modules[name]):
                visit(f"{needed}.js", (*path, name))
            done.append(name)

    visit(entry, ())
    return done


def _module(name: str, text: str, *, last: bool) -> str:
    names = [*EXPORT.findall(text), *(n for found in EXPORTED.findall(text) for n in found.split(", "))]
    text = IMPORT.sub(lambda found: f"const {{ {found[1]} }} = ${found[2]};", text)
    text = EXPORTED.sub("", text)
    text = EXPORT.sub(lambda found: found[0].removeprefix("export "), text)
    if other := OTHER.search(text):
        raise Unbundled(f"{name}: {other[0]!r} is an import or export of another form")
    return (
        text
        if last
        else f"const ${name.removesuffix('.js')} = (() => {{\n{text}return {{ {', '.join(names)} }};\n}})();\n"
    )


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
