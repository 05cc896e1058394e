"""What a generator knows about its task that a person could say, before anybody has written a word of the request.

A generator puts `Facts(...).to_record()` into `metadata["facts"]`; the making writes the three prompts from them (`writing.py`). Names of
code stand in backticks, so that the writers can tell them from prose: they are never misspelt, and the ambiguous prompt says them in words.
Facts say what is seen from outside (what a failing test shows, what a docstring promises), never how the reference does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from etude.tasks.errors import TaskError

KEY = "facts"


@dataclass(frozen=True)
class Facts:
    """`headline`: one sentence, what is wrong or what is wanted: "`parse` drops the last line of its input" (debugging, devops), "add
    `--json` to the list command" (all others, in the imperative). The rest may be empty.

    `steps`: how one sees it (calls, commands); `expected`, `actual`: what ought to come and what comes; `interface`: signatures or
    names that hidden tests need and a person must therefore know; `place`: module, file or area, in words; `notes`: further
    demands ("the public names stay as they are"), each a sentence."""

    headline: str
    steps: tuple[str, ...] = ()
    expected: str = ""
    actual: str = ""
    interface: tuple[str, ...] = ()
    place: str = ""
    notes: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def facts_of(metadata: Mapping[str, Any]) -> Facts | None:
    """None for a task whose generator says nothing. Raises TaskError."""
    table = metadata.get(KEY)
    if table is None:
        return None
    try:
        row: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
        }
        facts = Facts(**row)
    except (TypeError, AttributeError) as error:
        raise TaskError(f"metadata.{KEY} are no facts: {error}; make the task again") from error
    if not facts.headline.strip():
        raise TaskError(f"metadata.{KEY} have no headline, which every prompt needs")
    return facts
