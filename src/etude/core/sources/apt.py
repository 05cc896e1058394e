"""Which Debian mirrors this machine is configured with, from apt's own lists of sources (sources.list(5)), in both their forms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

APT = Path("/etc/apt")


@dataclass(frozen=True)
class AptSuite:
    """`uri` ends in "/"; `keys` are the key files that may sign for it (none: all that apt trusts)."""

    uri: str
    name: str
    components: tuple[str, ...]
    keys: tuple[Path, ...] = ()
    trusted: bool = False  # the administrator wants no signature

    @property
    def release(self) -> str:
        return f"{self.uri}dists/{self.name}/InRelease"


def suites(apt: Path = APT) -> list[AptSuite]:
    """All suites reached over http, in apt's order; lines for binaries count too, for a mirror has the sources as well."""
    folder = apt / "sources.list.d"
    parts = sorted(folder.iterdir()) if folder.is_dir() else []
    found: list[AptSuite] = []
    for file in [apt / "sources.list", *parts]:
        if file.suffix == ".list" and file.is_file():
            found += _one_line(file.read_text(errors="replace"))
        elif file.suffix == ".sources" and file.is_file():
            found += _deb822(file.read_text(errors="replace"))
    return list(dict.fromkeys(suite for suite in found if suite.uri.startswith(("http://", "https://"))))


def stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Paragraphs of a control file (deb822(5)): field names in lower case, continuation lines joined with newlines."""
    fields: dict[str, str] = {}
    last = ""
    for line in lines:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t":
            if last:
                fields[last] += "\n" + line.strip()
        elif ":" in line:
            last, _, value = line.partition(":")
            last = last.lower()
            fields[last] = value.strip()
    if fields:
        yield fields


def _deb822(text: str) -> Iterator[AptSuite]:
    for fields in stanzas(text.splitlines()):
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off"):
            continue
        signed_by = fields.get("signed-by", "")
        # A key written into the list itself is left to apt: the suite is then only read if apt trusts its signer otherwise.
        keys = () if "BEGIN PGP" in signed_by else tuple(Path(key) for key in signed_by.split() if key.startswith("/"))
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                components = tuple(fields.get("components", "").split())
                yield from _suite(uri, suite, components, keys, fields.get("trusted", ""))


def _one_line(text: str) -> Iterator[AptSuite]:
    for line in text.splitlines():
        match = re.match(r"\s*deb(?:-src)?\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match is None:
            continue
        options = dict(re.findall(r"(\S+?)=(\S+)", match[1] or ""))
        keys = tuple(Path(key) for key in options.get("signed-by", "").split(",") if key.startswith("/"))
        yield from _suite(match[2], match[3], tuple(match[4].split()), keys, options.get("trusted", ""))


def _suite(
    uri: str, name: str, components: tuple[str, ...], keys: tuple[Path, ...], trusted: str
) -> Iterator[AptSuite]:
    # A name that ends in "/" is a folder of loose packages without a suite.
    if not name.endswith("/") and components:
        yield AptSuite(uri.rstrip("/") + "/", name, components, keys, trusted.lower() in ("yes", "true", "1", "on"))
