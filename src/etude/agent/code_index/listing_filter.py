"""What `walk` keeps of a tree that was listed elsewhere: in a sandbox, whose files no index may walk.

Promise: of the same tree it keeps the same files as `walk`, ignore files anywhere in it included
(`tests/agent/code_index/test_code_index_listing_filter.py`). The caller leaves out what only the file system knows: links, special files, and
folders that have a mark of a cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from etude.agent.code_index.admission import refused_by_name
from etude.agent.code_index.ignore import Ignores
from etude.agent.code_index.walk import NEVER

EXCLUDE = ".git/info/exclude"
IGNORE = ".gitignore"


class ListingFilter:
    """`ignores`: the texts of the tree's ignore files by path, EXCLUDE among them where there is one."""

    def __init__(self, ignores: Mapping[str, str]) -> None:
        self._ignores = ignores
        outer = Ignores().within("", [ignores[EXCLUDE]] if EXCLUDE in ignores else [])
        self._folders: dict[str, Ignores | None] = {"": self._with_own("", outer)}

    def keeps(self, path: str, size: int) -> bool:
        """Whether a file of this many bytes is one to index, as far as its name, place and size tell."""
        folder, _, name = path.rpartition("/")
        rules = self._rules(folder + "/" if folder else "")
        if rules is None or not path.isprintable() or name in NEVER:
            return False
        return not rules.is_ignored(path, folder=False) and refused_by_name(path, size) is None

    def _rules(self, folder: str) -> Ignores | None:
        """Those in force in a folder; None for one that is not entered."""
        if folder not in self._folders:
            above, _, name = folder[:-1].rpartition("/")
            rules = self._rules(above + "/" if above else "")
            entered = rules is not None and folder.isprintable() and name not in NEVER
            if rules is None or not entered or rules.is_ignored(folder[:-1], folder=True):
                self._folders[folder] = None
            else:
                self._folders[folder] = self._with_own(folder, rules)
        return self._folders[folder]

    def _with_own(self, folder: str, above: Ignores) -> Ignores:
        own = self._ignores.get(folder + IGNORE)
        return above if own is None else above.within(folder, [own])
