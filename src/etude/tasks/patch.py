"""Applies a patch to a tree of texts, by git itself and in a folder of its own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from etude.link.git import GitError, git

# The modes of git's links and submodules, as a patch tells them.
_SPECIAL = re.compile(r"(?m)^(?:new (?:file )?mode|index \S+) (120000|160000)$")


class PatchRefused(Exception):
    """git would not apply the patch; says where."""


def patched(files: Mapping[str, str], patch: str) -> dict[str, str]:
    """The files after the patch. Raises PatchRefused."""
    if not patch.strip():
        return dict(files)
    if (special := _SPECIAL.search(patch)) is not None:
        raise PatchRefused(f"it makes a link or a submodule (mode {special[1]}), and a task holds plain files alone")
    named = [path for path in files if f"a/{path}" in patch or f"b/{path}" in patch]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for path in named:
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(files[path].encode())
        git(root, "init", "-q")  # else a repository around the folder would be meant
        try:
            git(
                root,
                "apply",
                "--whitespace=nowarn",
                "-",
                data=patch.encode() + (b"" if patch.endswith("\n") else b"\n"),
            )
        except GitError as error:
            raise PatchRefused(" ".join(str(error).partition(": ")[2].split()) or str(error)) from error
        left = {path: text for path, text in files.items() if path not in named}
        for place in sorted(root.rglob("*")):
            path = place.relative_to(root).as_posix()
            if place.is_file() and not place.is_symlink() and not path.startswith(".git/"):
                try:
                    left[path] = place.read_bytes().decode()
                except UnicodeDecodeError as error:
                    raise PatchRefused(f"{path} is no UTF-8 text after the patch") from error
    order = [*(path for path in files if path in left), *sorted(path for path in left if path not in files)]
    return {path: left[path] for path in order}
