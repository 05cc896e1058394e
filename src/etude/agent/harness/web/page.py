"""HTML as text that a model can read: headings, lists, links, preformatted text; scripts and styles left out. Pure."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_LEFT_OUT = {"script", "style", "noscript", "template", "svg", "head"}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "fieldset", "figure", "footer", "form", "header", "hr",
    "li", "main", "nav", "ol", "p", "pre", "section", "table", "tr", "ul",
}  # fmt: skip
_HEADING = re.compile(r"h[1-6]$")


def text_of(html: str) -> str:
    """Raises nothing: what is no HTML comes out as the text it is."""
    page = _Page()
    page.feed(_closed(html))
    page.close()
    text = "".join(page.parts)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _closed(html: str) -> str:
    """Without openings that nothing closes: the parser would look for the end of each to the end of the page."""
    unclosed = html.find("<!--", html.rfind("-->") + 1)
    if unclosed >= 0:
        html = html[:unclosed] + html[unclosed:].replace("<!--", "")
    last = html.rfind(">") + 1
    return html[:last] + html[last:].replace("<", "&lt;")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []  # open elements whose text is left out
        self._pre = 0
        self._links: list[str] = []

    def parse_html_declaration(self, i: int) -> int:
        """A marked section is a comment, as in a browser; the parser's own reading of it fails an assertion."""
        return self.parse_bogus_comment(i) if self.rawdata.startswith("<![", i) else super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _LEFT_OUT and not (self._silent and tag == "head"):
            self._silent.append(tag)
        elif tag == "body":
            self._silent.clear()  # an unclosed head ends here
        elif _HEADING.match(tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag in _BLOCKS:
            self._pre += tag == "pre"
            self.parts.append("\n- " if tag == "li" else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif tag == "a" and self._links:
            target = self._links.pop()
            self.parts.append(f" ({target})" if target.startswith(("http://", "https://")) else "")
        elif tag in _BLOCKS or _HEADING.match(tag):
            self._pre -= tag == "pre" and self._pre > 0
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))
