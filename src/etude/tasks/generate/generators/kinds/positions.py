"""Places in a text by character, from the lines and UTF-8 columns that `ast` tells."""

from __future__ import annotations

import ast
from itertools import accumulate


class Positions:
    """Of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        # As `ast` counts lines: form feeds and the like end none.
        self._lines = text.replace("\r\n", "\n").split("\n") if "\r" not in text else text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]

    def at(self, line: int, column: int) -> int:
        """`line` from 1, `column` in bytes."""
        encoded = self._lines[line - 1].encode()
        return self._starts[line - 1] + len(encoded[:column].decode("utf-8", "replace"))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Start and end of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]
