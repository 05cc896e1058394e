"""`report.html`: the board as one file. The page, its styles and its script stand in it, and so do the answers that a server would give.

What a reader wants first is plain markup, so that the overview and every section of the report read without scripts, on paper, and
by search; the script makes pages of them and adds the others. It is named by its hash: a browser runs nothing else, whatever a
session's text holds. Nothing is fetched.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.core.events.finite import without_nan
from etude.evaluate.report.advisories.collect import advisories
from etude.evaluate.report.advisories.shown import advisories_html, anchor
from etude.evaluate.report.board import machines
from etude.evaluate.report.board.attempt import UNREADABLE, AttemptReader
from etude.evaluate.report.board.columns import Columns
from etude.evaluate.report.board.curves import MetricHistory
from etude.evaluate.report.board.index import AttemptIndex
from etude.evaluate.report.board.sections import Sections
from etude.evaluate.report.settings import ReportSettings

# The data of a stand-alone page of a run: the board's own answers, packed, and as many attempts in full as there is
# room for.
#
# The document: {"still": JSON of {"run", "whole", "attempts"}, "packed": {answer: base64 of gzip}}; an answer is
# named as the board's address of it (`curves`, `rollouts`, `rollout/12`).


@dataclass
class PageData:
    """`problems`: what could not be read, by name, with the reason."""

    still: dict[str, Any]
    packed: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def document(self) -> str:
        """As the page holds it: JSON in a script element, which nothing in it can end."""
        return json.dumps({"still": json.dumps(self.still), "packed": self.packed}).replace("<", "\\u003c")


def read_page_data(run: Path, settings: ReportSettings) -> PageData:
    """Reads the run's files, and keeps the index next to them."""
    index = AttemptIndex(run)
    index.refresh()
    history = MetricHistory(run, index.problems)
    history.refresh()
    audit = machines.audit(index)
    whole = _whole(index, _flagged(index, audit["rows"]), settings)
    answers = {
        "curves": history.read(),
        "fleet": machines.fleet(index),
        "weights": machines.weights(index),
        "audit": audit,
    }
    packed = {name: pack(as_json(answer)) for name, answer in answers.items()}
    rows = Columns.unpack(index.pack()).pack()  # of one generation: the same files give the same bytes
    packed |= {"rollouts": pack(rows)} | whole
    problems = index.problems.found | audit["problems"]
    return PageData({"run": run.name, "whole": len(whole), "attempts": len(index)}, packed, problems)


def pack(data: bytes) -> str:
    """base64 of gzip; the same bytes give the same text."""
    return b64encode(gzip.compress(data, mtime=0)).decode()


def _whole(index: AttemptIndex, flagged: list[int], settings: ReportSettings) -> dict[str, str]:
    """Attempts in full until their number or the room is used up. One too large for what is left ends it."""
    attempts, found = AttemptReader(index), dict[str, str]()
    room = int(settings.rollout_mb * 1e6)
    for row in index.choose_attempts(flagged):
        if len(found) >= settings.rollouts:
            break
        try:
            text = pack(as_json(attempts.read(row)))
        except UNREADABLE as error:
            index.problems.record(f"attempt {row}", f"{type(error).__name__}: {error}")
            continue
        if len(text) > room:
            break
        room -= len(text)
        found[f"rollout/{row}"] = text
    return found


def _flagged(index: AttemptIndex, rows: Iterable[dict[str, Any]]) -> list[int]:
    """The attempts that an auditor flagged: the cheat desk links to them."""
    keys = {
        (str(row.get("key")), str(row.get("task_id")), int(row.get("attempt", -1))) for row in rows if row.get("flags")
    }
    return index.rows_of(keys) if keys else []


def as_json(value: Any) -> bytes:
    """Without blanks; a number that is not finite is null."""
    return json.dumps(without_nan(value), allow_nan=False, separators=(",", ":")).encode()


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
