"""What a person has typed at the terminal, for the arrow up: one file in the state folder, kept by the line, forgotten with a session."""

from __future__ import annotations

from collections.abc import Collection

from etude.agent.app.own_files import history_file


def forget_typed(texts: Collection[str]) -> int:
    """Take these words out; how many there were. The file is a line `# time` before each, then its lines after a plus sign (the form of
    prompt_toolkit's FileHistory)."""
    file = history_file()
    if not file.exists():
        return 0
    stamps, *rows = ("\n" + file.read_text(encoding="utf-8", errors="replace")).split("\n# ")
    kept = [row for row in rows if _words(row) not in texts]
    side = file.with_suffix(".tmp")
    side.touch(mode=0o600)
    side.write_text(stamps.lstrip("\n") + "".join(f"\n# {row}" for row in kept), encoding="utf-8")
    side.replace(file)
    return len(rows) - len(kept)


def _words(row: str) -> str:
    return "\n".join(line.removeprefix("+") for line in row.split("\n")[1:] if line.startswith("+"))
