"""A Debian source control file (dsc(5)) and the folder its archives make (dpkg-source(1), formats 1.0, 3.0 (native), 3.0 (quilt))."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etude.core.sources.apt import stanzas
from etude.core.sources.checksum import Checksum, strongest
from etude.core.sources.project import ProjectRefused
from etude.core.sources.unpack import UnpackLimits, top, unpack

FORMATS = ("1.0", "3.0 (native)", "3.0 (quilt)")
# A plain file name: it is put into an address.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_:-]*")
ARCHIVE = re.compile(
    r".*?(?:\.orig(?:-(?P<component>[A-Za-z0-9-]+))?|(?P<debian>\.debian)|)\.tar\.(?:gz|bz2|xz|lzma)|.*(?P<diff>\.diff\.gz)"
)


@dataclass(frozen=True)
class Dsc:
    """`files` are the archives by name, signatures left out."""

    format: str
    files: dict[str, Checksum]


def checksums(field: str) -> dict[str, Checksum]:
    """Checksum by file of a Checksums-Sha256 (or Release SHA256) field: lines of checksum, size and name."""
    rows = (line.split() for line in field.splitlines())
    found = {row[2]: strongest({"sha256": row[0]}) for row in rows if len(row) == 3}
    return {name: checksum for name, checksum in found.items() if checksum}


def read_dsc(file: Path) -> Dsc:
    """Raises ProjectRefused."""
    for fields in stanzas(file.read_text(errors="replace").splitlines()):  # the signature makes stanzas around it
        if "checksums-sha256" in fields:
            break
    else:
        raise ProjectRefused("the .dsc has no SHA-256 checksums")
    form = fields.get("format", "1.0")
    if form not in FORMATS:
        raise ProjectRefused(f"source format {form!r} is none of {', '.join(FORMATS)}")
    named = checksums(fields["checksums-sha256"])
    if odd := next((name for name in named if not NAME.fullmatch(name)), None):
        raise ProjectRefused(f"the .dsc names a file {odd!r}")
    archives = {name: checksum for name, checksum in named.items() if ARCHIVE.fullmatch(name)}
    if not archives:
        raise ProjectRefused("the .dsc names no archive")
    return Dsc(form, archives)


def assemble(
    dsc: Dsc, fetch: Callable[[str, Checksum], Path], folder: Path, limits: UnpackLimits
) -> tuple[Path, Counter[str]]:
    """Unpacks into new folders below `folder`; returns the project's and the counts of what was left out. Raises ProjectRefused."""
    skipped: Counter[str] = Counter()

    def unpacked(name: str, kind: str) -> Path:
        into = folder / kind
        into.mkdir()
        skipped.update(unpack(fetch(name, dsc.files[name]), into, limits).skipped)
        return into

    parts = {name: match for name in sorted(dsc.files) if (match := ARCHIVE.fullmatch(name))}
    main = [name for name, match in parts.items() if not any(match.groupdict().values())]
    if len(main) != 1:
        raise ProjectRefused(f"the .dsc names {len(main)} main archives, not one")
    root = top(unpacked(main[0], "main"))
    for name, match in parts.items():
        if match["component"]:
            _put(top(unpacked(name, f"component-{match['component']}")), root / match["component"])
        elif match["debian"]:
            packaging = unpacked(name, "packaging") / "debian"
            if not packaging.is_dir():
                raise ProjectRefused(f"{name} has no folder debian")
            _put(packaging, root / "debian")
        elif match["diff"]:
            skipped.update(unpack(fetch(name, dsc.files[name]), root, limits, diff=True).skipped)
    return root, skipped


def _put(folder: Path, at: Path) -> None:
    """Upstream's own folder of that name goes, as with dpkg-source."""
    if at.is_dir():
        shutil.rmtree(at)
    elif at.exists():
        at.unlink()
    folder.rename(at)
