"""A project's page of a pip index, in both its forms (PEP 503 HTML, PEP 691 and 700 JSON), read and written. Pure."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.packages.upstream import join_link

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "text/html"
ACCEPT = f"{JSON_TYPE}, {HTML_TYPE};q=0.1"


@dataclass(frozen=True)
class IndexFile:
    """One distribution. `metadata`: digests of its metadata file, {} where it has one without digests, None where it has none."""

    name: str
    url: str
    hashes: dict[str, str] = field(default_factory=dict)
    requires_python: str | None = None
    yanked: bool | str = False
    published: str | None = None
    size: int | None = None
    metadata: dict[str, str] | None = None


def read(body: bytes, content_type: str, base: str) -> list[IndexFile]:
    """Raises Refused(502) for what is neither."""
    try:
        if "json" in content_type:
            return [_from_json(entry, base) for entry in json.loads(body)["files"]]
        parser = _IndexPage(base)
        parser.feed(body.decode("utf-8", errors="replace"))
        return parser.files
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestRefused(502, f"the index' page can't be read: {error!r}") from None


def _from_json(entry: dict[str, Any], base: str) -> IndexFile:
    metadata = entry.get("core-metadata", entry.get("dist-info-metadata"))
    return IndexFile(
        name=str(entry["filename"]),
        url=join_link(base, entry["url"]),
        hashes=dict(entry["hashes"]),
        requires_python=entry.get("requires-python"),
        yanked=entry.get("yanked", False),
        published=entry.get("upload-time"),
        size=entry.get("size"),
        metadata=metadata if isinstance(metadata, dict) else {} if metadata else None,
    )


class _IndexPage(HTMLParser):
    """Its links; the digest is the fragment. No form of HTML tells when a file was published."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.files: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "base" and found.get("href"):
            self._base = join_link(self._base, found["href"] or "")
        if tag != "a" or not found.get("href"):
            return
        url = join_link(self._base, found["href"] or "")
        place = urlsplit(url)
        yanked = found.get("data-yanked", False)
        core_metadata = found.get("data-core-metadata", found.get("data-dist-info-metadata"))
        self.files.append(
            IndexFile(
                name=unquote(place.path.rpartition("/")[2]),
                url=place._replace(fragment="").geturl(),
                hashes=_pair(place.fragment),
                requires_python=found.get("data-requires-python"),
                yanked=True if yanked is None or yanked == "" else yanked,
                metadata=None if core_metadata is None else _pair(core_metadata),
            )
        )


def _pair(text: str) -> dict[str, str]:
    algorithm, separator, digest = text.partition("=")
    return {algorithm: digest} if separator else {}


def write_json(project: str, files: list[tuple[IndexFile, str]]) -> bytes:
    """Each file with the link under which it is to be had."""
    entries = [
        {
            "filename": file.name,
            "url": url,
            "hashes": file.hashes,
            "yanked": file.yanked,
            **({"requires-python": file.requires_python} if file.requires_python else {}),
            **({"core-metadata": file.metadata} if file.metadata else {}),
        }
        for file, url in files
    ]
    return json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": entries}).encode()


def write_html(project: str, files: list[tuple[IndexFile, str]]) -> bytes:
    lines = [f"<!DOCTYPE html><html><head><title>{html.escape(project)}</title></head><body>"]
    for file, url in files:
        mark = next((f"#{name}={value}" for name, value in file.hashes.items()), "")
        attributes = {
            "data-requires-python": file.requires_python,
            "data-yanked": "" if file.yanked is True else file.yanked or None,
        }
        if file.metadata:
            attributes["data-core-metadata"] = next(f"{name}={value}" for name, value in file.metadata.items())
        words = "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items() if value is not None)
        lines.append(f'<a href="{html.escape(url + mark)}"{words}>{html.escape(file.name)}</a><br>')
    return "\n".join([*lines, "</body></html>"]).encode()


def link(project: str, name: str) -> str:
    return f"/pip/files/{quote(project)}/{quote(name)}"


def write_projects_json(names: list[str]) -> bytes:
    return json.dumps({"meta": {"api-version": "1.0"}, "projects": [{"name": name} for name in names]}).encode()


def write_projects_html(names: list[str]) -> bytes:
    links = "\n".join(f'<a href="/pip/simple/{name}/">{name}</a><br>' for name in names)
    return f"<!DOCTYPE html><html><body>\n{links}\n</body></html>".encode()
