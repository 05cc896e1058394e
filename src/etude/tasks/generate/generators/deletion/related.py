"""Which definitions belong together: the graph of references between them, and groups that are connected in it.

One definition refers to another if it uses its name and both are in one module, or its module imports the name or the other's module. That
a name is the same is not enough: an attribute `get` is no reference to another module's function `get`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from etude.tasks.generate.generators.deletion.index import Defined, DefinitionIndex

WHOLE = frozenset(("__init__", "index"))  # modules that go by their folder's name


@dataclass(frozen=True)
class References:
    """Of an index, by name: two definitions of one name count as one, as in `DefinitionIndex`."""

    known: DefinitionIndex

    @cached_property
    def near(self) -> Mapping[str, frozenset[str]]:
        """By name, the names that it refers to or that refer to it."""
        by_name: dict[str, list[Defined]] = {}
        for one in self.known.defined:
            by_name.setdefault(one.name, []).append(one)
        found: dict[str, set[str]] = {name: set() for name in by_name}
        for user in self.known.defined:
            for name in user.uses & by_name.keys():
                if name != user.name and any(self._refers(user, used) for used in by_name[name]):
                    found[user.name].add(name)
                    found[name].add(user.name)
        return {name: frozenset(others) for name, others in found.items()}

    def is_connected(self, names: Iterable[str]) -> bool:
        """Whether each of the names is reached from each other over references between them alone."""
        left = set(names)
        waiting = [left.pop()] if left else []
        while waiting:
            reached = self.near.get(waiting.pop(), frozenset()) & left
            left -= reached
            waiting += reached
        return not left

    def _refers(self, user: Defined, used: Defined) -> bool:
        if user.path == used.path:
            return True
        place = PurePosixPath(used.path)
        stem = place.name.partition(".")[0]
        modules = {place.parent.name, *(() if stem in WHOLE else (stem,))}
        imports = self.known.imports.get(user.path, frozenset())
        return used.name in imports or not imports.isdisjoint(modules - {""})


@dataclass(frozen=True)
class Groups:
    """Connected groups of pieces (`Index.feature`), grown from one piece to its neighbours until they are large.

    `large`: whether names are enough; `most`: of names in a group."""

    references: References
    pieces: tuple[frozenset[str], ...]
    large: Callable[[frozenset[str]], bool]
    most: int

    def draw(self, rng: random.Random) -> Iterator[frozenset[str]]:
        """Large groups, each piece in one of them at most."""
        used: set[frozenset[str]] = set()
        for seed in rng.sample(self.pieces, len(self.pieces)):
            if seed in used or not self.references.is_connected(seed):
                continue
            group, members = self._grown(seed, used, rng)
            if group:
                used |= members
                yield group

    def _grown(
        self, seed: frozenset[str], used: set[frozenset[str]], rng: random.Random
    ) -> tuple[frozenset[str], set[frozenset[str]]]:
        group, members = seed, {seed}
        refused: set[frozenset[str]] = set()
        while len(group) <= self.most:
            if self.large(group):
                return group, members
            around = self._around(group)
            fits = [
                piece
                for piece in self.pieces
                if not piece <= group and piece not in used | refused and not around.isdisjoint(self._around(piece))
            ]
            if not fits:
                break
            piece = rng.choice(fits)
            whole = self.references.known.with_helpers(group | piece)
            if len(whole) <= self.most and self.references.is_connected(whole):
                group, members = whole, members | {piece}
            else:
                refused.add(piece)
        return frozenset(), set()

    def _around(self, names: frozenset[str]) -> frozenset[str]:
        """The names, what they refer to and what refers to them, of which a group may still be connected: members and private helpers."""
        near = frozenset().union(*(self.references.near.get(name, frozenset()) for name in names))
        return names | (near & self._helpers)

    @cached_property
    def _helpers(self) -> frozenset[str]:
        return frozenset(one.name for one in self.references.known.defined if one.helper)
