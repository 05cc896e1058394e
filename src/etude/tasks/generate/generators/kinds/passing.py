"""A project's test file as a reference: without the tests that do not pass here."""

from __future__ import annotations

from etude.core.bounded_python import parse_python
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generators.kinds.trial import Right
from etude.tasks.real.hiding import without


def passing_file(text: str, right: Right) -> str:
    """The file without those that fail or are skipped: a reference must pass whole. Raises CandidateRejected."""
    fails = {name.partition("::")[2].partition("[")[0] for name in right.failed}
    holders = {name.partition("::")[0].rpartition(".")[2] for name in right.failed}
    try:
        kept = without(text, {*fails, *(f"{holder}.{name}" for holder in holders for name in fails)}) if fails else text
        parse_python(kept)
    except (SyntaxError, ValueError) as error:
        raise CandidateRejected(f"its tests can't be taken apart: {error}") from error
    return kept


def script_passing(text: str, right: Right) -> str:
    """JavaScript's tests are calls in one another, by names that are made as they run: a file with one that fails is left out."""
    if right.failed:
        raise CandidateRejected(f"{len(right.failed)} of its tests fail here, {min(right.failed)!r} first")
    return text
