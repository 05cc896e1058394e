"""What a tree holds, for a code index that may not walk it: files with size and digest, and the texts of its ignore files.

`list_tree.py JSON`: {never, marks, largest}. One JSON document: {files: {path: [size, digest]}, ignores: {path: text}}. The digest is
blake2b-16 in hex, "" for a file larger than `largest`. Links, special files, names in `never`, folders that hold one of `marks` and what
can't be read are left out. Everything is read each time: no time stamp tells that a folder was moved over another.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from typing import Any

IGNORES = (".gitignore", ".git/info/exclude")


def listed(wanted: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"files": {}, "ignores": {}}
    never, marks = set(wanted["never"]), wanted["marks"]
    for folder, folders, names in os.walk("."):
        base = os.path.relpath(folder, ".") + "/" if folder != "." else ""
        folders[:] = [
            f for f in folders if f not in never and not any(os.path.lexists(f"{base}{f}/{m}") for m in marks)
        ]
        for name in IGNORES[: 1 if base else 2]:
            if os.path.isfile(base + name):
                with open(base + name, encoding="utf-8", errors="replace") as file:
                    found["ignores"][base + name] = file.read()
        for name in names:
            if name not in never:
                look(base + name, wanted, found["files"])
    return found


def look(path: str, wanted: dict[str, Any], files: dict[str, list[Any]]) -> None:
    try:
        if os.path.islink(path) or not os.path.isfile(path):
            return
        size, digest = os.path.getsize(path), ""
        if size <= wanted["largest"]:
            with open(path, "rb") as file:
                digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        files[path] = [size, digest]
    except OSError:
        return  # it went while we looked, or can't be read: as the index leaves it out


if __name__ == "__main__":
    json.dump(listed(json.loads(sys.argv[1])), sys.stdout)
