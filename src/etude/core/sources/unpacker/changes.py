"""The diff of a Debian source of format 1.0: one unified diff from upstream's folder to the package's.

Files that it creates are written. What it changes in upstream's files stays unapplied, as with the other formats, and is kept as
`debian/patches/debian-changes`, the name dpkg-source gives such a patch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from io import BytesIO

from etude.core.archives import ArchiveError, Readable, plain_path
from etude.core.sources.unpacker.tree import UnpackedTree

CHANGES = "debian/patches/debian-changes"
# Of the whole diff, which is held in memory: an honest one is a few MB, and with its lines it is in memory three times.
DIFF_BYTES = 64 * 1024 * 1024
NO_NEWLINE = b"\\"


def unpack_diff(stream: Readable, tree: UnpackedTree) -> None:
    """Writes what the diff creates and, if there is any, what it changes."""
    text = stream.read(DIFF_BYTES + 1)
    if len(text) > DIFF_BYTES:
        raise ArchiveError(f"diff of more than {DIFF_BYTES:,} bytes")
    changed: list[bytes] = []
    for name, hunks in files(text_lines(text)):
        path = plain_path(name.partition("/")[2])
        tree.counter.add(path)
        if not tree.has_printable_name(path):
            continue
        if path == "":
            raise ArchiveError("a file without a name")
        if hunks and hunks[0].startswith(b"@@ -0,0 "):
            new = added_file(hunks[1:])
            tree.write(path, len(new), BytesIO(new))
        else:
            spelled = os.fsencode(path)
            changed += [b"--- a/" + spelled + b"\n", b"+++ b/" + spelled + b"\n", *hunks]
    if changed:
        new = b"".join(changed)
        tree.write(CHANGES, len(new), BytesIO(new))


def text_lines(text: bytes) -> list[bytes]:
    """Lines end at "\\n" only: a carriage return belongs to the line."""
    return [line + b"\n" for line in text.removesuffix(b"\n").split(b"\n")] if text else []


def files(lines: Iterable[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """(new name, hunk lines) of each file. The lengths in hunk headers are counted down, for a removed line "-- x" looks like the
    header of a file."""
    name, hunks, old, new = "", [], 0, 0
    for line in lines:
        if line.startswith(NO_NEWLINE):
            hunks.append(line)
        elif old > 0 or new > 0:
            hunks.append(line)
            old -= not line.startswith(b"+")
            new -= not line.startswith(b"-")
        elif line.startswith(b"@@ -") and name:
            old, new = _lengths(line)
            hunks.append(line)
        elif line.startswith(b"+++ "):
            if name:
                yield name, hunks
            name, hunks = os.fsdecode(line[4:].split(b"\t")[0].strip()), []
    if old > 0 or new > 0:
        raise ArchiveError("damaged archive: the diff ends inside a hunk")
    if name:
        yield name, hunks


def added_file(hunk: list[bytes]) -> bytes:
    """The new file that the lines of its only hunk make."""
    text = b"".join(line[1:] for line in hunk if line.startswith(b"+"))
    return text.removesuffix(b"\n") if hunk and hunk[-1].startswith(NO_NEWLINE) else text


def _lengths(header: bytes) -> tuple[int, int]:
    """Lines of the old and of the new side: "@@ -1,3 +1,4 @@" is (3, 4); without a comma it is one line."""
    try:
        old, new = (int(side.partition(b",")[2] or b"1") for side in header.split(b" ")[1:3])
    except ValueError:
        raise ArchiveError(f"damaged archive: hunk header {header[:60]!a}") from None
    return old, new
