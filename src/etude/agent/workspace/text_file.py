"""A text file as lines, and how it goes back to bytes: byte-order mark, line ends and last newline as they were.

Promise: a splice changes no byte outside of the lines it replaces, also where a file mixes line ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from etude.agent.workspace.bounded_file import UTF8_MARK as BOM
from etude.agent.workspace.bounded_file import UTF16_MARKS


class NotText(Exception):
    """The bytes are no UTF-8 text; the message says what they look like."""


@dataclass(frozen=True)
class TextFile:
    """`lines` without their ends, split at each newline, so a file that ends in one has an empty last line. `returns[i]`: line i
    ends in a carriage return before its newline. A carriage return anywhere else is an ordinary character."""

    lines: tuple[str, ...]
    returns: tuple[bool, ...]
    bom: bool

    @classmethod
    def decode(cls, data: bytes) -> TextFile:
        """Raises NotText."""
        bom = data.startswith(BOM)
        body = data[len(BOM) :] if bom else data
        if data.startswith(UTF16_MARKS):
            raise NotText("is UTF-16 text, not UTF-8")
        if b"\0" in body:
            raise NotText("is binary")
        try:
            rows = body.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise NotText(f"is not UTF-8 text (byte {error.start})") from None
        returns = tuple(row.endswith("\r") for row in rows[:-1]) + (False,)
        lines = tuple(row[:-1] if cr else row for row, cr in zip(rows, returns, strict=True))
        return cls(lines, returns, bom)

    @classmethod
    def like(cls, text: str, old: TextFile | None) -> TextFile:
        """New content for a file: with the mark and the line ends of the old one, where there is one."""
        lines = text.split("\n")
        if old is None:
            return (
                cls.decode(text.encode("utf-8"))
                if "\0" not in text
                else cls(tuple(lines), (False,) * len(lines), False)
            )
        crlf = old.mostly_returns and not any(line.endswith("\r") for line in lines)
        bare = tuple(line.removesuffix("\r") for line in lines[:-1]) + (lines[-1],)
        returns = tuple(crlf or line.endswith("\r") for line in lines[:-1]) + (False,)
        return cls(bare, returns, old.bom)

    def encode(self) -> bytes:
        rows = (line + ("\r\n" if cr else "\n") for line, cr in zip(self.lines[:-1], self.returns, strict=False))
        return (BOM if self.bom else b"") + "".join([*rows, self.lines[-1]]).encode("utf-8")

    @property
    def text(self) -> str:
        """What a policy reads: newlines only, no mark."""
        return "\n".join(self.lines)

    @property
    def mostly_returns(self) -> bool:
        """Whether most of its line ends are CRLF."""
        return 2 * sum(self.returns) > len(self.lines) - 1

    def splice(self, start: int, stop: int, new: list[str]) -> TextFile:
        """Lines [start, stop) replaced by `new`. Lines that stay keep their ends; a new line ends as the one it replaces did, or
        as most of the file does; the file's last line has no end."""
        most = min(stop - start, len(new))
        head = next((i for i in range(most) if self.lines[start + i] != new[i]), most)
        tail = next((i for i in range(most - head) if self.lines[stop - 1 - i] != new[-1 - i]), most - head)
        start, stop, new = start + head, stop - tail, new[head : len(new) - tail]
        usual = self.mostly_returns
        known = (*self.returns[:-1], usual)  # the last line has no end yet; it gets the usual one if it needs one
        ends = [known[start + i] if start + i < stop else usual for i in range(len(new))]
        lines = (*self.lines[:start], *new, *self.lines[stop:]) or ("",)
        returns = (*known[:start], *ends, *known[stop:]) or (False,)
        return replace(self, lines=lines, returns=(*returns[:-1], False))
