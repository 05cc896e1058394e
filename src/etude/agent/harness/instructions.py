"""A project's instructions for agents: its AGENTS.md files, from the repository's root down to the agent's folder.

A deeper file comes later and therefore takes precedence (the agents.md convention). The files become part of the system prompt, which a
self-summary never drops. Rollouts have none unless the task's repository has some.

A repository is untrusted: a file that links out of it is refused, and the user is informed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from etude.agent.workspace.bounded_file import FileRefused, decode_text, read_inside

NAME = "AGENTS.md"
# Limit of all files together. The nearest file is cut last. Instructions that are meant to be read fit in it.
MAX_BYTES = 32 << 10
# A larger file is not meant to be read, so it is refused as a whole.
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class InstructionFile:
    """One AGENTS.md file. `path` is relative to the searched root."""

    path: str
    text: str


@dataclass(frozen=True)
class ProjectInstructions:
    """`files`, outermost first, and one line for the user about each file that is cut or refused."""

    files: list[InstructionFile]
    problems: list[str]


def find_instructions(folder: Path) -> ProjectInstructions:
    """AGENTS.md of `folder` and of the folders above it up to the repository's root."""
    folder = folder.resolve()
    above = [folder, *folder.parents]
    root = next((place for place in above if (place / ".git").exists()), folder)
    files: list[InstructionFile] = []
    problems: list[str] = []
    for place in above[: above.index(root) + 1][::-1]:
        path = str((place / NAME).relative_to(root))
        try:
            data = read_inside(root, path, MAX_FILE_BYTES)
        except FileRefused as error:
            problems.append(f"{error}; the agent works without it")
            continue
        if data is not None:
            files.append(InstructionFile(path, decode_text(data)))
    fitted = fit(files)
    return ProjectInstructions(fitted.files, problems + fitted.problems)


def fit(files: Iterable[InstructionFile]) -> ProjectInstructions:
    """Cut the files, given outermost first, to MAX_BYTES together. The nearest file gets space first."""
    kept: list[InstructionFile] = []
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
        kept.append(InstructionFile(file.path, text))
    return ProjectInstructions(kept[::-1], problems[::-1])


def render_instructions(files: Iterable[InstructionFile]) -> str:
    """The files as the system prompt shows them; empty for none."""
    return "\n\n".join(
        f'<instructions path="{file.path}">\n{file.text}\n</instructions>' for file in files if file.text
    )


def _cut(text: str, room: int) -> str:
    """Cut at the last line end within `room` bytes, or within a line if that would leave less than half."""
    kept = text.encode()[:room].decode(errors="ignore")
    lines = kept.rpartition("\n")[0]
    return lines if 2 * len(lines) >= len(kept) else kept
