"""Whether a layer is still what its manifest says: a quick look before every use, a full one where the quick one can't be trusted.

The quick look compares kind, mode, size and time of change of every entry with what was written. It can't see what a power failure left
half written (nothing is flushed when a layer is made: a fork takes milliseconds), so a layer's first use after a boot reads all of it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
from pathlib import Path

from etude.core.files import replace_file
from etude.sandbox.layers import overlay
from etude.sandbox.layers.errors import CorruptLayer
from etude.sandbox.layers.manifest import LayerEntry, LayerManifest
from etude.sandbox.layers.tree import read_entry, walk

_REMEDY = "remove the snapshots that need it (`etude sandbox layers list`) and make them again"


@functools.cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def check_layer(layer: Path, digest: str) -> int:
    """How many entries it has. Raises LayerCorrupt. Quick, where this boot made the layer or has read all of it already."""
    manifest = read_manifest(layer, digest)
    try:
        seal = json.loads((layer / "seal").read_text())
        boot, times = seal["boot"], seal["mtime_ns"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        boot, times = "", []
    if len(times) != len(manifest.entries):
        raise CorruptLayer(f"layer {digest[:12]}: its seal is broken; {_REMEDY}")
    whole = True  # whether the quick look could see all of it: an ordinary user's may not enter a folder closed to its owner
    tree = os.open(layer / "tree", os.O_PATH | os.O_DIRECTORY)
    try:
        for entry, mtime_ns in zip(manifest.entries, times, strict=True):
            whole &= _look(tree, entry, mtime_ns, digest)
    finally:
        os.close(tree)
    if boot != boot_id() or not whole:
        verify_layer(layer, digest)
        replace_file(layer / "seal", json.dumps({"boot": boot_id(), "mtime_ns": times}).encode())
    return len(manifest.entries)


def verify_layer(layer: Path, digest: str) -> None:
    """Read every byte. Raises LayerCorrupt for what was changed, is missing or came on top."""
    manifest = read_manifest(layer, digest)
    expected = {entry.path: entry for entry in manifest.entries}
    found: set[str] = set()
    for path, fd, name in walk(layer / "tree"):
        entry = expected.get(path)
        actual = read_entry(path, fd, name)
        if entry != actual:
            raise CorruptLayer(f"layer {digest[:12]}: {path} is not what was written there; {_REMEDY}")
        found.add(path)
    if missing := expected.keys() - found:
        raise CorruptLayer(f"layer {digest[:12]}: {min(missing)} is missing; {_REMEDY}")


def read_manifest(layer: Path, digest: str) -> LayerManifest:
    """Raises LayerCorrupt."""
    try:
        text = (layer / "manifest").read_bytes()
    except OSError as error:
        raise CorruptLayer(f"layer {digest[:12]} has no manifest ({error.strerror}); {_REMEDY}") from None
    if hashlib.sha256(text).hexdigest() != digest:
        raise CorruptLayer(f"layer {digest[:12]}: its manifest has another digest; {_REMEDY}")
    return LayerManifest.parse(text)


def _look(tree: int, entry: LayerEntry, mtime_ns: int, digest: str) -> bool:
    try:
        status = os.stat(entry.path, dir_fd=tree, follow_symlinks=False)
    except PermissionError:
        return False
    except OSError as error:
        raise CorruptLayer(f"layer {digest[:12]}: {entry.path}: {error.strerror}; {_REMEDY}") from None
    kind = stat.S_IFMT(status.st_mode)
    if entry.kind == "file":
        found = (kind, stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns)
        good = found == (stat.S_IFREG, entry.mode, entry.size, mtime_ns)
    elif entry.kind == "dir":
        good = (kind, stat.S_IMODE(status.st_mode)) == (stat.S_IFDIR, entry.mode)
    elif entry.kind == "link":
        good = (kind, status.st_size) == (stat.S_IFLNK, len(os.fsencode(entry.content)))
    else:
        good = overlay.is_whiteout(status)
    if not good:
        raise CorruptLayer(f"layer {digest[:12]}: {entry.path} is not what was written there; {_REMEDY}")
    return True
