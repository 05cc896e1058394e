"""Which tools the sessions of a folder declare. SFT takes the tools that a session was recorded with; RL and the bench offer those of
`harness.preset`. Where the two differ, the model learns calls that nothing offers afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etude.rollout.collect.taught import session_files


def other_tools(folder: Path, schemas: Sequence[dict[str, Any]]) -> str:
    """One line about the folder's sessions that declare other tools than `schemas`; "" where all declare these, in these words."""
    declared = [_declared(file) for file in session_files(folder)]
    others = [tools for tools in declared if tools != list(schemas)]
    if not others:
        return ""
    theirs, ours = _names(others[0]), _names(schemas)
    differ = (
        "other descriptions of the same tools" if theirs == ours else f"the tools {theirs}" if theirs else "no tools"
    )
    return (
        f"{len(others)} of {len(declared)} sessions in {folder} declare {differ}, and harness.preset offers {ours}: what SFT learns from them "
        "is not what rl and bench offer; choose the preset of the sessions"
    )


def _declared(file: Path) -> list[dict[str, Any]]:
    """The tool schemas in the first line of a session file. Raises ValueError, which names the file, where that is no header."""
    try:
        with file.open(encoding="utf-8") as lines:
            return json.loads(lines.readline()).get("harness_facts", {}).get("schemas", [])
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file}: its first line is no header of a session ({error}); move the file away") from error


def _names(schemas: Sequence[dict[str, Any]]) -> str:
    return ", ".join(schema["function"]["name"] for schema in schemas)
