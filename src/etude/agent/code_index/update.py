"""The index brought up to what the folder holds now: walk, compare, read what changed, commit, merge.

A file is read again if its time or size is another than at the last update, and indexed again only if its bytes are (a checkout touches
thousands of files and changes a few). A file changed within RACY_NS of the walk may change again within one tick of its clock, so its stamp is
not trusted next time (as git's index does). Finished batches are committed as they come: killed anywhere, the next update goes on from there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from etude.agent.code_index.columns import write_columns
from etude.agent.code_index.merging import due, merge
from etude.agent.code_index.reading import BatchDone, FileBatch, FileToIndex
from etude.agent.code_index.store import IndexStore, KnownFiles, State
from etude.agent.code_index.vectors import move_vectors
from etude.agent.code_index.view import View
from etude.agent.code_index.walk import Stamp, Walk, require_folder, walk
from etude.agent.code_index.workers import cores, read_all

RACY_NS = 2_000_000_000
UNTRUSTED = -1
# What one worker holds at a time: some 350 MB at the peak, when words are sorted into postings.
BATCH_BYTES = 12 << 20
BATCH_FILES = 4000
# Below this a second process costs more than it reads.
ALONE_BYTES = 4 << 20
COMMIT_EVERY_S = 15.0

# Files done, files to do; called first with nothing done.
Progress = Callable[[int, int], None]


@dataclass
class IndexUpdateReport:
    """What an update did, in files. `skipped`: reason -> files and folders left out, ignored ones included."""

    files: int = 0
    chunks: int = 0
    indexed: int = 0
    same: int = 0
    removed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def update(
    store: IndexStore, root: Path, *, workers: int = 0, progress: Progress | None = None
) -> tuple[State, IndexUpdateReport]:
    """`workers` 0: one a core. Raises IndexRefused for a root that is no readable folder; the store's lock is held meanwhile."""
    began = time.monotonic()
    require_folder(root)  # before a store is made for it
    with store.writing():
        job = _Job(store, root)
        job.run(workers or cores(), progress or (lambda done, total: None))
        state = job.state
    job.report.files, job.report.chunks = len(state.view.places()), state.view.chunks
    job.report.skipped = dict(Counter(reason for reason, _, _ in job.seen.skipped.values()).most_common())
    job.report.seconds = round(time.monotonic() - began, 3)
    return state, job.report


class _Job:
    """One update, under the lock."""

    def __init__(self, store: IndexStore, root: Path) -> None:
        self.store, self.root = store, root
        self.state = store.read()
        self.before = store.read_known_files() if self.state.generation else KnownFiles()
        self.now_ns = time.time_ns()
        self.found: Walk = walk(root)
        self.seen = KnownFiles(skipped={path: (reason, 0, 0) for path, reason in self.found.skipped.items()})
        self.report = IndexUpdateReport()

    def run(self, workers: int, progress: Progress) -> None:
        view, wanted = self._compare()
        done, committed = 0, time.monotonic()
        batches = list(self._batches(wanted, workers))
        small = sum(w.stamp.size for w in wanted) < ALONE_BYTES
        if wanted:
            progress(0, len(wanted))
        for batch in read_all(batches, 1 if small else workers):
            view = self._take(view, batch)
            done += len(batch.outcomes)
            progress(done, len(wanted))
            if time.monotonic() - committed > COMMIT_EVERY_S:
                view, committed = self._commit(view), time.monotonic()
        if wanted or self.report.removed or self.seen != self.before or not self.state.generation:
            self._commit(self._merged(view))
            self.store.sweep()

    def _compare(self) -> tuple[View, list[FileToIndex]]:
        """The view without files that went, and the files to read."""
        view = self.state.view
        held = view.places()
        gone = [path for path in held if path not in self.found.files]
        self.report.removed = len(gone)
        wanted = []
        for path, stamp in sorted(self.found.files.items()):
            if path in held and self.before.files.get(path) == stamp:
                self.seen.files[path] = stamp
                self.report.same += 1
            elif path not in held and self.before.skipped.get(path, ("", 0, 0))[1:] == stamp:
                self.seen.skipped[path] = self.before.skipped[path]
            else:
                wanted.append(FileToIndex(path, stamp, view.digest(path) if path in held else b""))
        return view.with_changes(gone, []), wanted

    def _batches(self, wanted: Sequence[FileToIndex], workers: int) -> Iterator[FileBatch]:
        """Alike in bytes, so that no worker waits long for the last one."""
        total = sum(w.stamp.size for w in wanted)
        most = min(BATCH_BYTES, max(total // (2 * workers) + 1, ALONE_BYTES))
        files: list[FileToIndex] = []
        size = 0
        for w in wanted:
            files.append(w)
            size += w.stamp.size
            if size >= most or len(files) == BATCH_FILES:
                yield FileBatch(self.root, self.store.folder / self.store.fresh_name(), files)
                files, size = [], 0
        if files:
            yield FileBatch(self.root, self.store.folder / self.store.fresh_name(), files)

    def _take(self, view: View, done: BatchDone) -> View:
        """The view with a batch's files in place of what they were."""
        replaced = []
        for (path, stamp, digest), status, reason in done.outcomes:
            trusted = stamp if stamp.mtime_ns < self.now_ns - RACY_NS else Stamp(UNTRUSTED, stamp.size)
            if status != "same" and digest:
                replaced.append(path)
            if status in ("indexed", "same"):
                self.seen.files[path] = trusted
            elif status == "skipped":
                self.seen.skipped[path] = (reason, trusted.mtime_ns, trusted.size)
        counts = Counter(outcome.status for outcome in done.outcomes)
        self.report.indexed += counts["indexed"]
        self.report.same += counts["same"]
        self.report.removed += sum(o.status in ("gone", "skipped") and o.wanted.digest != b"" for o in done.outcomes)
        added = [self.store.load(done.batch.segment.name)] if done.wrote else []
        return view.with_changes(replaced, added)

    def _merged(self, view: View) -> View:
        """The view with fewer segments and the same files."""
        while numbers := due([part.part() for part in view.parts]):
            old = [view.parts[number] for number in numbers]
            merged = merge([part.part() for part in old])
            name = self.store.fresh_name()
            rest = View(part for number, part in enumerate(view.parts) if number not in numbers)
            if not len(merged.columns["language"]):
                view = rest
                continue
            write_columns(self.store.folder / name, merged.columns)
            move_vectors(self.store.folder, [part.segment.name for part in old], merged.moved, name)
            view = rest.with_changes([], [self.store.load(name)])
        return view

    def _commit(self, view: View) -> View:
        self.state = self.store.commit(self.state.generation + 1, view, self.seen)
        return View(part for part in view.parts if part.alive_files.any())
