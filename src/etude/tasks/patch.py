"""Applies a patch to a tree of files, by git itself and in a temporary folder: modes, links, renames and binary data as git has them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from etude.agent.git_links.git import GitError, git
from etude.tasks.content import LINK, file_text, files_below, leads_out, mode_of, read_file, write_file

_SUBMODULE = re.compile(r"(?m)^(?:new (?:file )?mode|index \S+) 160000$")
# git writes a name in quotes and escapes where it is not plain ASCII; which file is meant is git's to say.
_QUOTED = re.compile(r'(?m)^(?:diff --git|---|\+\+\+|rename from|copy from) "')


class PatchRefused(Exception):
    """git would not apply the patch; says where."""


def apply_patch(files: Mapping[str, str], patch: str) -> dict[str, str]:
    """The files after the patch. Raises PatchRefused."""
    if not patch.strip():
        return dict(files)
    if _SUBMODULE.search(patch) is not None:
        raise PatchRefused("it changes a submodule (mode 160000), and a task holds files alone")
    whole = _QUOTED.search(patch) is not None
    named = [path for path in files if whole or f"a/{path}" in patch or f"b/{path}" in patch or f" {path}\n" in patch]
    data = patch.encode("utf-8", "surrogateescape")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        try:
            for path in named:
                write_file(root, path, files[path].encode())
            git(root, "init", "-q")  # else a repository around the folder would be meant
            git(root, "apply", "--whitespace=nowarn", "-", data=data if data.endswith(b"\n") else data + b"\n")
        except GitError as error:
            raise PatchRefused(" ".join(str(error).partition(": ")[2].split()) or str(error)) from error
        except (OSError, ValueError) as error:
            raise PatchRefused(f"its tree can't be laid out: {error}") from error
        left = {path: text for path, text in files.items() if path not in named}
        left |= {path: file_text(read_file(root / path)) for path in files_below(root, (".git",))}
    for path, text in left.items():
        if mode_of(text) == LINK and files.get(path) != text and leads_out(path, text):
            raise PatchRefused(f"it makes a link that leads out of the tree: {path} -> {text[:80]}")
    order = [*(path for path in files if path in left), *sorted(path for path in left if path not in files)]
    return {path: left[path] for path in order}
