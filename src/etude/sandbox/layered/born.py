"""What a sandbox' files were at birth, beyond its layers: known without having looked."""

from __future__ import annotations

import hashlib
import posixpath

from etude.sandbox.layers.manifest import Entry
from etude.sandbox.layers.view import View
from etude.sandbox.spec import SandboxSpec

BORN = "born"  # the digest that stands for a spec's own files
_MODE = 0o644
_EMPTY = hashlib.sha256().hexdigest()
_HOSTS = "etc/hosts"  # made empty in an image's root that has none, for ours to be mounted on


def as_born(spec: SandboxSpec, below: View) -> list[Entry]:
    found = [
        Entry(path, "file", _MODE, len(data), hashlib.sha256(data).hexdigest()) for path, data in contents(spec).items()
    ]
    if spec.image and _HOSTS not in below.entries:
        found.append(Entry(_HOSTS, "file", _MODE, 0, _EMPTY))
    return found


def contents(spec: SandboxSpec) -> dict[str, bytes]:
    """By path from the root."""
    return {
        posixpath.normpath(posixpath.join(spec.workdir, path)).lstrip("/"): data for path, data in spec.files.items()
    }
