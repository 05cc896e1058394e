"""Sources into a library: every project gathered once, then copies found over all of it. Resumable, memory flat.

    manifest.jsonl    the chain of what went in and why the rest did not, a line a project; what it lists is finished
    records/          the texts that were kept (library.py), copies among them still
    dedup/            a signature for each text, in the manifest's order
    copies.npy        for each text the number of the one kept in its place; written last

A kill loses the projects that were being read, nothing else: a project counts once its line is in the manifest, and signatures behind
the last line are cut off. The order is that of the recipe, whatever the number of workers, so two builds of the same sources agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.core.events.log import EventLog
from etude.core.sources.fetch import Fetcher
from etude.core.sources.project import Ref, SourceOffline
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.dedup.index import DedupIndex
from etude.learn.corpus.library import Library
from etude.learn.corpus.manifest import LibraryManifest, entries
from etude.learn.corpus.open_sources import open_sources
from etude.learn.corpus.quota import OVER, Quota
from etude.learn.corpus.settings import CorpusSettings
from etude.learn.corpus.workers import ProjectTexts, gather_all

STAGE = "corpus"
COPIES = "copies.npy"
SETTINGS = "settings.json"


class BuildError(Exception):
    """The folder can't be built into; the message says why and what to do."""


class LibraryBuilder:
    """Builds into `folder`; downloads lie in `cache`, which several builds may share."""

    def __init__(self, settings: CorpusSettings, folder: Path, cache: Path, log: EventLog) -> None:
        if not settings.sources:
            raise BuildError("the recipe names no source: add a table such as [corpus.sources.mine] with kind and path")
        self.settings, self.folder, self.cache, self.log = settings, folder, cache, log

    def run(self) -> Clusters:
        """Goes on where an earlier build was killed; returns which texts are copies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._bind()
        (self.folder / COPIES).unlink(missing_ok=True)
        with LibraryManifest(self.folder / "manifest.jsonl") as manifest, DedupIndex(self.folder / "dedup") as index:
            index.cut(sum(entry["records"] for entry in entries(manifest.path)))
            quota = Quota(self.settings.sources, entries(manifest.path))
            refs = list(self.refs())
            done = manifest.done()
            waiting = [ref for ref in refs if ref.id not in done]
            found = gather_all(waiting, self.settings, self.folder, self.cache, quota.full)
            for number, gathered in enumerate(found, 1):
                self._take(gathered, quota, manifest, index)
                self.log.progress(STAGE, len(refs) - len(waiting) + number, len(refs), project=gathered.ref.id)
            self.log.note(STAGE, f"{len(index):,} texts; looking for copies among them")
            clusters = index.finish(self.settings.library.near_duplicate)
        clusters.save(self.folder / COPIES)
        return clusters

    def refs(self) -> Iterator[Ref]:
        """All projects of all sources; a source that can't be reached is skipped with a notice."""
        fetcher = Fetcher(self.cache)
        quota = Quota(self.settings.sources, ())
        try:
            for source in open_sources(self.settings.sources, fetcher).values():
                try:
                    yield from quota.order(source.name, source.refs())
                except SourceOffline as offline:
                    self.log.note(STAGE, f"source {source.name} is skipped: {offline}")
        finally:
            fetcher.close()

    def _take(self, gathered: ProjectTexts, quota: Quota, manifest: LibraryManifest, index: DedupIndex) -> None:
        source, full = gathered.ref.source, quota.full(gathered.ref.source)
        if not gathered.reason and not quota.admits(source, gathered.tally.bytes.total()):
            if not full:  # those read ahead are left out in silence
                self.log.note(
                    STAGE, f"source {source} is full: {gathered.ref.id} and what follows is left out ({OVER})"
                )
            Library(self.folder).path(gathered.ref.id).unlink()
            gathered = ProjectTexts(gathered.ref, reason=OVER)
        elif gathered.reason and gathered.reason != OVER:
            self.log.note(STAGE, f"{gathered.ref.id} is left out: {gathered.reason}")
        if gathered.offline:  # in no manifest: the next build asks again
            return
        for digest, rank, signature in gathered.signatures:
            index.append(digest, rank, signature)
        index.flush()
        manifest.append(gathered.entry(), gathered.tally.refusals)

    def _bind(self) -> None:
        """A library is of one recipe: texts that were judged by different rules would be mixed without notice."""
        path, mine = self.folder / SETTINGS, identity(self.settings)
        if not path.exists():
            path.write_text(json.dumps(mine, indent=1) + "\n")
            return
        theirs = json.loads(path.read_text())
        if theirs != mine:
            changed = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
            raise BuildError(
                f"{self.folder} was built with other settings ({', '.join(changed)}): put them back, or name another folder"
            )


def identity(settings: CorpusSettings) -> dict[str, Any]:
    """What decides which texts the library holds, and which of them are held out."""
    library = settings.library.model_dump(mode="json", exclude={"workers", "near_duplicate", "fingerprints"})
    sources = {name: table.model_dump(mode="json", exclude={"weight"}) for name, table in settings.sources.items()}
    prints = [hashlib.sha256(path.read_bytes()).hexdigest() for path in settings.library.fingerprints]
    return library | {"fingerprints": prints, "sources": sources}
