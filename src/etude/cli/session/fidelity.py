"""`etude session diff --harness`: what differs between the harness of two sessions, one of use and one of training."""

from __future__ import annotations

import difflib
import json as json_room
from typing import TYPE_CHECKING, Any

from etude.cli.answer import Answer
from etude.cli.former import print_present_spelling
from etude.cli.option import Json
from etude.cli.session.places import File, find_session

if TYPE_CHECKING:
    from pathlib import Path

    from etude.core.trace.fidelity import FactDifference

# Maximum printed lines of a prompt's or schema's difference; --json has all of them.
SHOWN_LINES = 12


def former_fidelity(first: File, second: File, json: Json = False) -> Answer:
    """Print the harness facts that differ between two sessions; exit 1 if a policy could see any of them."""
    print_present_spelling("session fidelity", "session diff --harness")
    return compare_harnesses(first, second)


def compare_harnesses(first: Path, second: Path) -> Answer:
    """Exit status 1 if a policy could see a difference."""
    from etude.agent.git_links.home import read_entries
    from etude.core.trace.fidelity import fidelity, same_harness

    (one, _), (other, _) = (read_entries(find_session(file)) for file in (first, second))
    found = fidelity(one, other)
    seen = [row for row in found if row.seen]
    same = same_harness(one, other) and not seen
    document = {
        "same": same,
        "harness": [one.harness, other.harness],
        "seen": [_row(row) for row in seen],
        "unseen": [_row(row) for row in found if not row.seen],
    }
    lines = [
        f"harness {one.harness or 'unknown'} and {other.harness or 'unknown'}: {'the same' if same else 'different'}"
    ]
    if not same and not seen:
        lines.append("no recorded fact explains it: one of the sessions was recorded before facts were, or imported")
    lines += ["", "what a policy could see:", *(line for row in seen for line in _lines(row))] if seen else []
    hidden = [row for row in found if not row.seen]
    lines += ["", "what it could not see:", *(line for row in hidden for line in _lines(row))] if hidden else []
    return Answer(document, "\n".join(lines), int(not same))


def _row(row: FactDifference) -> dict[str, Any]:
    return {"fact": row.fact, "first": row.first, "second": row.second, "only": row.only}


def _lines(row: FactDifference) -> list[str]:
    from etude.cli.session.transcript import clean

    if row.only is not None:
        return [f"  {row.fact}: only the {row.only} session has it"]
    texts = [v if isinstance(v, str) else json_room.dumps(v, indent=1, sort_keys=True) for v in (row.first, row.second)]
    if all("\n" not in text and len(text) <= 60 for text in texts):
        return [clean(f"  {row.fact}: {texts[0]} | {texts[1]}")]
    old, new = (text.splitlines() for text in texts)
    lines = difflib.unified_diff(old, new, lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    more = [f"    … {len(changed) - SHOWN_LINES} more"] if len(changed) > SHOWN_LINES else []
    return [f"  {row.fact}:", *(clean(f"    {line}") for line in changed[:SHOWN_LINES]), *more]
