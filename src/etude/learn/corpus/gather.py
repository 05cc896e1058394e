"""One project to records: each file judged, its licence looked up, secrets and names replaced, and every refusal counted with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from etude.core.licence import LicenceBook, family
from etude.core.licence.licence import Licence
from etude.core.redact.redaction import redact
from etude.core.sources.folder import walk
from etude.core.sources.project import SourceProject
from etude.learn.corpus.fingerprints import Fingerprints
from etude.learn.corpus.judge import FileRefusal, judge, judge_name
from etude.learn.corpus.judge.python import PythonCheck
from etude.learn.corpus.quota import OVER
from etude.learn.corpus.record import TextRecord

# A licence header is at the top; reading on would find the licences that a file talks about.
HEAD_CHARS = 4_000


@dataclass(frozen=True)
class Rules:
    """What is taken. `families` are the licence families of this source; `max_bytes` bounds what is kept of a project."""

    families: Collection[str]
    fingerprints: Fingerprints | None = None
    redact: bool = True
    max_bytes: int | None = None


@dataclass
class GatherTally:
    """What became of a project's files. `refusals` are (path, reason), one for each file that was not taken."""

    raw_bytes: int = 0
    files: Counter[str] = field(default_factory=Counter)  # by language
    bytes: Counter[str] = field(default_factory=Counter)  # by language
    licences: Counter[str] = field(default_factory=Counter)  # files by family
    refused: Counter[str] = field(default_factory=Counter)  # files by reason
    redacted: Counter[str] = field(default_factory=Counter)  # placeholders by kind
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, path: str, reason: str) -> None:
        """Counts and lists a file that is not taken; what a reason has in parentheses is of this file alone and only listed."""
        self.refused[reason.partition(" (")[0]] += 1
        self.refusals.append((path, reason))


def gather(project: SourceProject, rules: Rules, tally: GatherTally) -> Iterator[TextRecord]:
    """Records of the files that are taken, in the order of their paths; `tally` is full when the iteration ends."""
    tally.refused.update(project.skipped)
    skipped: Counter[str] = Counter()
    book = LicenceBook.of_project(project.root, project.ref.kind)
    python = PythonCheck()
    for file in walk(project.root, skipped):
        path = file.relative_to(project.root).as_posix()
        found = _take(file, path, rules, book, python, project, tally)
        if isinstance(found, str):
            tally.refuse(path, found)
        else:
            yield found
    tally.refused.update(skipped)


def _take(
    file: Path,
    path: str,
    rules: Rules,
    book: LicenceBook,
    python: PythonCheck,
    project: SourceProject,
    tally: GatherTally,
) -> TextRecord | str:
    """The record, or why there is none."""
    if OVER in tally.refused:  # one file did not fit: it was the last
        return OVER
    try:
        size = file.stat().st_size
        tally.raw_bytes += size
        if refusal := judge_name(path, size):
            return refusal.value
        data = file.read_bytes()
    except OSError:
        return "unreadable"
    kept = judge(path, data, is_python=python.accepts)
    if isinstance(kept, FileRefusal):
        return kept.value
    licence = book.of(path, kept.text[:HEAD_CHARS])
    if (kind := family(licence.expression)) not in rules.families:
        return f"licence: {kind}"
    if rules.fingerprints and (match := rules.fingerprints.refusal(project.ref.project, kept.text)):
        return match
    text, replaced = redact(kept.text) if rules.redact else (kept.text, Counter())
    size = len(text.encode())
    if rules.max_bytes is not None and tally.bytes.total() + size > rules.max_bytes:
        return OVER
    tally.redacted.update(replaced)
    tally.licences[kind] += 1
    tally.files[kept.language] += 1
    tally.bytes[kept.language] += size
    return _record(project, path, text, kept.language, licence)


def _record(project: SourceProject, path: str, text: str, language: str, licence: Licence) -> TextRecord:
    ref = project.ref
    return TextRecord(text, "file", ref.source, ref.project, ref.version, ref.released, path, language, licence)
