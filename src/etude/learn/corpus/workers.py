"""Projects gathered side by side: each worker fetches, unpacks, judges and files its project, and hands back what to write down."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from etude.core.licence.licence import EVIDENCE
from etude.core.sources.fetch import Fetcher
from etude.core.sources.project import ProjectRefused, ProjectSource, Ref, SourceOffline
from etude.learn.corpus.dedup.minhash import Signature, sign
from etude.learn.corpus.fingerprints import Fingerprints
from etude.learn.corpus.gather import GatherTally, Rules, gather
from etude.learn.corpus.library import Library
from etude.learn.corpus.manifest import ProjectEntry
from etude.learn.corpus.open_sources import open_sources
from etude.learn.corpus.quota import OVER
from etude.learn.corpus.record import TextRecord
from etude.learn.corpus.settings import CorpusSettings

# Projects handed out ahead, a worker: enough that none waits for its turn in the order, few enough that memory stays flat.
AHEAD = 4
PR_SET_PDEATHSIG = 1  # prctl(2)


class WorkerLost(Exception):
    """A worker process died; nothing that was written down is lost."""


@dataclass
class ProjectTexts:
    """A project that has been read. `signatures` has (digest, rank, signature) of each text; `reason` why it was left out as a whole;
    `offline`: only for now."""

    ref: Ref
    origin: str = ""
    tally: GatherTally = field(default_factory=GatherTally)
    signatures: list[tuple[str, int, Signature | None]] = field(default_factory=list)
    reason: str = ""
    offline: bool = False

    def entry(self) -> ProjectEntry:
        """For the manifest."""
        ref, tally = self.ref, self.tally
        return ProjectEntry(
            id=ref.id,
            source=ref.source,
            project=ref.project,
            version=ref.version,
            released=ref.released,
            origin=self.origin,
            records=len(self.signatures),
            raw_bytes=tally.raw_bytes,
            licences=sort_counts(tally.licences),
            kept={language: (tally.files[language], tally.bytes[language]) for language in sorted(tally.files)},
            refused=sort_counts(tally.refused),
            redactions=sort_counts(tally.redacted),
            reason=self.reason,
        )


def sort_counts(counts: Counter[str]) -> dict[str, int]:
    """The same line for the same counts, in whatever order they came."""
    return dict(sorted(counts.items()))


def gather_all(
    refs: Iterable[Ref], settings: CorpusSettings, folder: Path, cache: Path, full: Callable[[str], bool]
) -> Iterator[ProjectTexts]:
    """Every project in the order of `refs`, `library.workers` of them at a time; those of a source that is `full` come unread.

    Raises WorkerLost; what was handed out by then is written down or asked again.
    """
    workers = settings.library.workers or len(os.sched_getaffinity(0))
    if workers == 1:
        worker = Worker(settings, folder, cache)
        yield from (ProjectTexts(ref, reason=OVER) if full(ref.source) else worker.gather(ref) for ref in refs)
        return
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawn, _start, (settings, folder, cache, os.getpid()))
    try:
        waiting: deque[Future[ProjectTexts]] = deque()
        for ref in refs:
            waiting.append(_over(ref) if full(ref.source) else _submitted(pool, ref))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise WorkerLost(
            f"one of {workers} worker processes died; perhaps memory ran out. Run the same command again and it goes on; "
            "fewer at once, library.workers, take less memory"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, ref: Ref) -> Future[ProjectTexts]:
    try:
        return pool.submit(_gather, ref)
    except (OSError, ValueError) as error:  # a worker died, and the pool closed its pipes under this very call
        raise BrokenProcessPool(str(error)) from error


def _over(ref: Ref) -> Future[ProjectTexts]:
    """Done already, in its place in the order."""
    future: Future[ProjectTexts] = Future()
    future.set_result(ProjectTexts(ref, reason=OVER))
    return future


class Worker:
    """What a process needs to gather projects."""

    def __init__(self, settings: CorpusSettings, folder: Path, cache: Path) -> None:
        self.library = Library(folder)
        self.sources: dict[str, ProjectSource] = open_sources(settings.sources, Fetcher(cache))
        prints = settings.library.fingerprints
        fingerprints = Fingerprints.load(prints) if prints else None
        self.rules = {
            name: Rules(table.families, fingerprints, settings.library.redact, table.max_bytes)
            for name, table in settings.sources.items()
        }

    def gather(self, ref: Ref) -> ProjectTexts:
        """Files the project's records in the library; a project that can't be taken is gathered empty, with the reason."""
        found = ProjectTexts(ref)
        try:
            with self.sources[ref.source].open(ref) as project:
                found.origin = project.origin
                records = gather(project, self.rules[ref.source], found.tally)
                self.library.write(ref.id, _signed(records, found))
        except (ProjectRefused, SourceOffline) as error:
            return ProjectTexts(ref, reason=str(error), offline=isinstance(error, SourceOffline))
        return found


def _signed(records: Iterable[TextRecord], found: ProjectTexts) -> Iterator[TextRecord]:
    """The records as they come, their signatures noted."""
    for record in records:
        found.signatures.append((record.digest, rank(record), sign(record.text)))
        yield record


def rank(record: TextRecord) -> int:
    """Of copies the one with the surest licence stays (lower is better); among equals the one that came first."""
    return EVIDENCE.index(record.licence.evidence)


_worker: Worker | None = None


def _start(settings: CorpusSettings, folder: Path, cache: Path, parent: int) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the build, which lets its workers end
    # The pool's own end is an orderly one: workers of a killed build would wait for projects for ever.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _worker = Worker(settings, folder, cache)


def _gather(ref: Ref) -> ProjectTexts:
    assert _worker is not None  # the pool's initializer ran
    return _worker.gather(ref)
