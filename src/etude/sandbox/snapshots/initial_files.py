"""The files of a new sandbox above its layers, computed from its spec."""

from __future__ import annotations

import hashlib
import posixpath

from etude.sandbox.layers.manifest import LayerEntry
from etude.sandbox.layers.view import LayerView
from etude.sandbox.spec import SandboxSpec

INITIAL = "born"  # the digest that represents a spec's own files
_MODE = 0o644
_EMPTY = hashlib.sha256().hexdigest()
_HOSTS = "etc/hosts"  # made empty in an image's root that has none, for ours to be mounted on


def initial_entries(spec: SandboxSpec, below: LayerView) -> list[LayerEntry]:
    found = [
        LayerEntry(path, "file", _MODE, len(data), hashlib.sha256(data).hexdigest())
        for path, data in initial_contents(spec).items()
    ]
    if spec.image and _HOSTS not in below.entries:
        found.append(LayerEntry(_HOSTS, "file", _MODE, 0, _EMPTY))
    return found


def initial_contents(spec: SandboxSpec) -> dict[str, bytes]:
    """By path from the root."""
    return {
        posixpath.normpath(posixpath.join(spec.workdir, path)).lstrip("/"): data for path, data in spec.files.items()
    }
