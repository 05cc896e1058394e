"""What a project tells every agent: its AGENTS.md files, from the root of the repository down to the folder the agent works in.

A deeper file comes later and so has the last word (agents.md, the convention). They become part of the system prompt, which a
self-summary never drops. Rollouts of tasks have none unless the task's repository does.

A repository is somebody else's: a file that is a link out of it is refused, and the person is informed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from etude.agent.workspace.bounded_file import FileRefused, decoded, read_inside

NAME = "AGENTS.md"
# All files together. The nearest one is the last to be cut. Enough for any that is meant to be read.
MAX_BYTES = 32 << 10
# A file of more is none that is meant to be read, so not even its beginning is taken.
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Instructions:
    """One file. `path` is relative to the root that was searched."""

    path: str
    text: str


@dataclass(frozen=True)
class Found:
    """`files`, outermost first, and what the person must know of those that are cut or refused, a line each."""

    files: list[Instructions]
    problems: list[str]


def find_instructions(folder: Path) -> Found:
    """AGENTS.md of `folder` and of the folders above it up to the repository's root."""
    folder = folder.resolve()
    above = [folder, *folder.parents]
    root = next((place for place in above if (place / ".git").exists()), folder)
    files: list[Instructions] = []
    problems: list[str] = []
    for place in above[: above.index(root) + 1][::-1]:
        path = str((place / NAME).relative_to(root))
        try:
            data = read_inside(root, path, MAX_FILE_BYTES)
        except FileRefused as error:
            problems.append(f"{error}; the agent works without it")
            continue
        if data is not None:
            files.append(Instructions(path, decoded(data)))
    fitted = fit(files)
    return Found(fitted.files, problems + fitted.problems)


def fit(files: Iterable[Instructions]) -> Found:
    """Files, outermost first, cut to MAX_BYTES together: room goes to the nearest first."""
    kept: list[Instructions] = []
    problems: list[str] = []
    room = MAX_BYTES
    for file in [*files][::-1]:
        text = file.text.removeprefix("\ufeff").strip()
        size = len(text.encode())
        if size > room:
            text = _cut(text, room)
            limit = f"{NAME} files together are longer than {MAX_BYTES >> 10} KiB"
            problems.append(f"{file.path} is cut to {len(text.encode())} of its {size} bytes: {limit}; shorten it")
            text = f"{text}\n[cut: {limit}]".lstrip("\n")
        room = max(0, room - size)
        kept.append(Instructions(file.path, text))
    return Found(kept[::-1], problems[::-1])


def rendered(files: Iterable[Instructions]) -> str:
    """As they stand in the system prompt; empty for none."""
    return "\n\n".join(
        f'<instructions path="{file.path}">\n{file.text}\n</instructions>' for file in files if file.text
    )


def _cut(text: str, room: int) -> str:
    """At the last line end within `room` bytes; within a line where that would leave less than half."""
    kept = text.encode()[:room].decode(errors="ignore")
    lines = kept.rpartition("\n")[0]
    return lines if 2 * len(lines) >= len(kept) else kept
