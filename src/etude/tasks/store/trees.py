"""Projects of a folder of tasks, each once: its tree of files (zstandard), where it came from, and the recipe of its environment.

environments/<name>/tree.json.zst, about.json, recipe.toml        renamed into place whole; a recipe that was lacking may come later
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zstandard

from etude.core.files import replace_file
from etude.core.trace.bounded_zstd import decompress
from etude.tasks.content import files_from_json, files_to_json
from etude.tasks.errors import TaskError
from etude.tasks.place import MAX_ID_CHARS

TREE, ABOUT, RECIPE = "tree.json.zst", "about.json", "recipe.toml"
KEPT = 4  # trees in memory; a project's tasks are mostly read one after the other
MAX_TREE_BYTES = 256 << 20


def tree_digest(tree: Mapping[str, str]) -> str:
    """SHA-256 of a tree's canonical JSON; empty for no tree."""
    return hashlib.sha256(_text(tree)).hexdigest() if tree else ""


class Trees:
    """By the name of the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self._digests: dict[str, str] = {}

    def names(self) -> list[str]:
        return (
            sorted(place.name for place in self.folder.iterdir() if (place / TREE).is_file())
            if self.folder.is_dir()
            else []
        )

    def put(self, name: str, tree: Mapping[str, str], about: Mapping[str, Any], recipe: str = "") -> None:
        """Raises TaskError where another tree is kept under the name."""
        place = self._place(name)
        if place.is_dir():
            if self.about(name).get("tree") != tree_digest(tree):
                raise TaskError(f"{place} holds another tree than {name} has now: give the tasks another folder")
            if recipe and not (place / RECIPE).is_file():  # of tasks that were made before recipes were kept
                replace_file(place / RECIPE, recipe)
            return
        draft = self.folder / f".{name}.{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        (draft / TREE).write_bytes(zstandard.ZstdCompressor(level=9).compress(_text(tree)))
        (draft / ABOUT).write_text(
            json.dumps({**about, "tree": tree_digest(tree)}, indent=1, ensure_ascii=False) + "\n"
        )
        if recipe:
            (draft / RECIPE).write_text(recipe, encoding="utf-8")
        draft.rename(place)

    def tree(self, name: str) -> Mapping[str, str]:
        """Raises TaskError."""
        if name not in self._kept:
            file = self._place(name) / TREE
            try:
                data = decompress(file.read_bytes(), MAX_TREE_BYTES)
                self._kept[name] = files_from_json(json.loads(data))
            except (OSError, ValueError, RecursionError) as error:
                raise TaskError(
                    f"{file} can't be read ({error}): the tasks of {name} need it; make them again"
                ) from error
        self._kept.move_to_end(name)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[name]

    def digest(self, name: str) -> str:
        """Of the tree as it is, read again."""
        if name not in self._digests:
            self._digests[name] = tree_digest(self.tree(name))
        return self._digests[name]

    def about(self, name: str) -> dict[str, Any]:
        """Raises TaskError."""
        file = self._place(name) / ABOUT
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TaskError(f"{file} can't be read ({error}); make the tasks of {name} again") from error

    def recipe(self, name: str) -> str:
        """Empty where there is none."""
        file = self._place(name) / RECIPE
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def _place(self, name: str) -> Path:
        if not name or name.startswith(".") or "/" in name or "\0" in name or len(name) > MAX_ID_CHARS:
            raise TaskError(f"an environment can't be called {name[:80]!r}: it names a folder")
        return self.folder / name


def _text(tree: Mapping[str, str]) -> bytes:
    return json.dumps(files_to_json(tree), sort_keys=True, ensure_ascii=True).encode()
