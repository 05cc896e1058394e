"""Which index this machine uses: what its own pip and npm answer when they are asked. No index is named here."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.sandbox.egress.errors import BadRule

_PATIENCE_S = 60.0  # npm takes a second on a quiet machine
_DEFAULT = re.compile(r"\(default\s+(\S+?)\)")
_TOKEN = re.compile(r"^\s*(//\S+?/?):_authToken\s*=\s*(.+)$")
_PIP = (sys.executable, "-P", "-m", "pip")


@dataclass(frozen=True)
class IndexConfiguration:
    """`urls` in the order in which they are asked; may hold credentials, so it is never printed. `authority`: a file of certificates, or "".
    `tokens`: of npm, by the place that they are for."""

    urls: tuple[str, ...]
    authority: str = ""
    tokens: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Configured({len(self.urls)} indexes)"


def pip(command: Sequence[str] = _PIP) -> IndexConfiguration:
    """Index, extra indexes and certificates, as pip resolves them. Raises BadRule where pip has none or isn't there."""
    found: dict[str, str] = {}
    lines = _output_of([*command, "config", "list"]).splitlines()
    # A file's [global], then its [install], then the environment: later ones win.
    for section in ("global", "install", ":env:"):
        for line in lines:
            key, _, value = line.partition("=")
            where, _, option = key.rpartition(".")
            if where == section and value[:1] in "'\"":
                found[option] = ast.literal_eval(value)
    main = found.get("index-url")
    if main is None:
        default = _DEFAULT.search(_output_of([*command, "install", "--help"]).partition("--index-url")[2])
        main = default.group(1) if default else ""
    urls = tuple(url for url in (main, *found.get("extra-index-url", "").split()) if url)
    if not urls:
        raise BadRule("pip has no index configured (pip config set global.index-url URL)")
    return IndexConfiguration(urls, found.get("cert", ""))


def npm(command: Sequence[str] = ("npm",)) -> IndexConfiguration:
    """Raises BadRule where npm has no registry or isn't there."""
    url = _output_of([*command, "config", "get", "registry"]).strip()
    if not url.startswith(("http://", "https://")):
        raise BadRule("npm has no registry configured (npm config set registry URL)")
    authority = _output_of([*command, "config", "get", "cafile"]).strip()
    files = [_output_of([*command, "config", "get", key]).strip() for key in ("globalconfig", "userconfig")]
    tokens = {place: token for file in files for place, token in _tokens(Path(file))}
    return IndexConfiguration(
        (url,), authority if authority not in ("null", "undefined") else "", tuple(tokens.items())
    )


def _tokens(file: Path) -> Iterator[tuple[str, str]]:
    """`//host/path/:_authToken=...` lines of an npmrc, variables filled in as npm does; npm itself does not tell them."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_absolute() else []
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        if match := _TOKEN.match(line):
            token = re.sub(r"\$\{(\w+)\}", lambda name: os.environ.get(name[1], ""), match[2].strip().strip("\"'"))
            if token:
                yield match[1], token


def _output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BadRule(f"`{' '.join(command)}` can't be asked for its index: {error}") from None
    return done.stdout
