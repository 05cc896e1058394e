"""An operator: a name, which nodes it looks at, and what it makes of one of them; families of operators are data of their own files.

    FAMILY = Family("comparisons")

    @FAMILY.operator("python", "loosen-bound", "comparison_operator", weight=3)
    def loosened(code, node):
        yield [(token.start_byte, token.end_byte, "<=")]

`weight` says how plausible such a slip is (1: a person might, 5: everybody has made it): plausible ones come first. `complexity`: the
fewest decisions of the function around, SWE-smith's gate. Operators are pure: the same file gives the same sites in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.edit import OverlappingEdits, SourceEdit, apply_edits

Change = Sequence[tuple[int, int, str]]  # start, end, text
Make = Callable[[Code, Node], Iterable[Change]]


@dataclass(frozen=True)
class Site:
    """One bug to be. `function` is the dotted name of the function it lies in, empty for a module's own lines."""

    operator: str
    family: str
    path: str
    function: str
    line: int
    weight: float
    edits: tuple[SourceEdit, ...]

    @property
    def key(self) -> str:
        """A name of 10 letters that other bugs don't have."""
        listing = repr([(e.path, e.start, e.end, e.text) for e in self.edits])
        return sha256(f"{self.operator} {listing}".encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Operator:
    name: str
    family: str
    language: str
    kinds: tuple[str, ...]
    make: Make
    weight: float = 1.0
    complexity: int = 0
    module_level: bool = False  # whether lines outside functions count

    def sites(self, code: Code) -> Iterator[Site]:
        """All of a file that leave it one that parses and says something else."""
        return (site for site in self.propose_sites(code) if sound(code, site))

    def propose_sites(self, code: Code) -> Iterator[Site]:
        """All of a file, unchecked: a check costs a parse, a list of ten thousand needs only those that are tried."""
        if code.language != self.language:
            return
        for kind in self.kinds:
            for node in code.by_kind.get(kind, ()):
                if node.is_named:  # a keyword may be called like what it begins: await
                    yield from self._at(code, node)

    def _at(self, code: Code, node: Node) -> Iterator[Site]:
        function = code.function_of(node.start_byte)
        if function is None and not self.module_level:
            return
        if function is not None and function.complexity < self.complexity:
            return
        for change in self.make(code, node):
            edits = tuple(sorted(SourceEdit(code.path, start, end, text.encode()) for start, end, text in change))
            if edits:
                name = function.name if function else ""
                line = code.line(edits[0].start)
                yield Site(self.name, self.family, code.path, name, line, self.weight, edits)


def sound(code: Code, site: Site) -> bool:
    """Whether the file with the bug parses and differs in meaning, not in layout alone."""
    try:
        return code.sound(apply_edits(code.source, site.edits))
    except OverlappingEdits:
        return False


@dataclass(frozen=True)
class OperatorFamily:
    """Operators that belong together, in the order they were declared."""

    name: str
    operators: list[Operator] = field(default_factory=list)

    def operator(
        self,
        language: str,
        name: str,
        *kinds: str,
        weight: float = 1.0,
        complexity: int = 0,
        module_level: bool = False,
    ) -> Callable[[Make], Make]:
        """Declares the function below it. JavaScript's operators have a name of their own: `js-` before it."""

        def declare(make: Make) -> Make:
            full = f"js-{name}" if language == "javascript" else name
            self.operators.append(Operator(full, self.name, language, kinds, make, weight, complexity, module_level))
            return make

        return declare
