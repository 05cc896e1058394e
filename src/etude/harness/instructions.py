"""What a project tells every agent: its AGENTS.md files, from the root of the repository down to the folder the agent works in.

A deeper file comes later and so has the last word (agents.md, the convention). They become part of the system prompt, which a
self-summary never drops. Rollouts of tasks have none unless the task's repository does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAME = "AGENTS.md"
# All files together; a longer one is cut at a line and says so. Enough for any that is meant to be read.
MAX_BYTES = 32 << 10


@dataclass(frozen=True)
class Instructions:
    """One file. `path` is relative to the root that was searched."""

    path: str
    text: str


def find_instructions(folder: Path) -> list[Instructions]:
    """AGENTS.md of `folder` and of the folders above it up to the repository's root, outermost first."""
    folder = folder.resolve()
    above = [folder, *folder.parents]
    root = next((place for place in above if (place / ".git").exists()), folder)
    places = above[: above.index(root) + 1][::-1]
    found: list[Instructions] = []
    room = MAX_BYTES
    for place in places:
        file = place / NAME
        if file.is_file() and room > 0:
            text = _cut(file.read_text(encoding="utf-8", errors="replace").strip(), room)
            room -= len(text.encode())
            found.append(Instructions(str(file.relative_to(root)), text))
    return found


def rendered(found: list[Instructions]) -> str:
    """As they stand in the system prompt; empty for none."""
    return "\n\n".join(f'<instructions path="{one.path}">\n{one.text}\n</instructions>' for one in found if one.text)


def _cut(text: str, room: int) -> str:
    data = text.encode()
    if len(data) <= room:
        return text
    kept = data[:room].decode(errors="ignore").rpartition("\n")[0]
    return f"{kept}\n[cut: {NAME} files together are longer than {MAX_BYTES >> 10} KiB]"
