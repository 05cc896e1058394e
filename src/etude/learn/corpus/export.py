"""A library's texts as training documents in one of three shapes, one JSON line each: what any trainer can read.

    files       each text that is not a copy, whole or cut for fill-in-the-middle
    projects    each project's texts as one long string, in an order of its own, cut at the longest bucket
    changes     what changed between two releases that follow each other, and Debian's patches, with what their authors say of them

Changes are made of all texts, copies too: most of a release is a copy of the one before it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import zstandard

from etude.core.files import replacing
from etude.learn.corpus.build import COPIES, SETTINGS
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.library import LEVEL, Library
from etude.learn.corpus.manifest import entries
from etude.learn.corpus.record import TextRecord
from etude.learn.corpus.shape.diffs import Form as Edits
from etude.learn.corpus.shape.diffs import release_diffs
from etude.learn.corpus.shape.fim import LONGEST_CHARS, FimTokens, Special, fim
from etude.learn.corpus.shape.patches import patch_records
from etude.learn.corpus.shape.project_string import BUCKETS, Order, ProjectString, project_strings
from etude.learn.corpus.split import held_out

Form = Literal["files", "projects", "changes"]
Split = Literal["train", "heldout"]
FORMS: tuple[Form, ...] = get_args(Form)
SPLITS: tuple[Split, ...] = get_args(Split)
EDITS: tuple[Edits, ...] = get_args(Edits)

TOKENS = FimTokens(Special("prefix"), Special("suffix"), Special("middle"))


# A project whose text is denser than was guessed is cut again with so much less text a string.
FINER = 0.8


class LibraryUnfinished(Exception):
    """The build has not finished, so it is not known yet which texts are copies."""


@dataclass(frozen=True)
class ExportShape:
    """How texts are cut and ordered; which documents fall under `fim_rate` and how hangs on `seed` and the text alone."""

    fim_rate: float = 0.0
    fim_tokens: FimTokens = TOKENS
    fim_longest_chars: int = LONGEST_CHARS
    order: Order = "dependencies"
    edits: Edits = (
        "unified"  # how a change is shown: as a diff, or as the file, the request and search-and-replace blocks
    )
    chars_per_token: float = 3.5  # of code under a vocabulary of 100,000 and more; a small one has fewer
    buckets: tuple[int, ...] = BUCKETS  # tokens; a project is cut at the longest
    counts: Callable[[Sequence[str]], list[int]] | None = (
        None  # tokens of texts; with it no project string exceeds the last bucket
    )
    seed: int = 0


def export(folder: Path, form: Form, split: Split, shape: ExportShape, source: str = "") -> Iterator[dict[str, Any]]:
    """Documents in the manifest's order, of all sources or of the one named. Raises LibraryUnfinished."""
    if not (folder / COPIES).is_file():
        raise LibraryUnfinished(
            f"{folder} holds no finished library ({COPIES} is missing): run the same `etude corpus build` again"
        )
    clusters, library = Clusters.load(folder / COPIES), Library(folder)
    share = json.loads((folder / SETTINGS).read_text())["heldout_share"]
    number = 0
    versions: list[dict[str, Any]] = []
    for line in entries(folder / "manifest.jsonl"):
        first, number = number, number + line["records"]
        if not line["records"] or source and line["source"] != source:
            continue
        if held_out(line["project"], share) != (split == "heldout"):
            continue
        if form == "changes":
            if versions and (versions[-1]["source"], versions[-1]["project"]) != (line["source"], line["project"]):
                yield from _changes(library, versions, shape)
                versions = []
            versions.append(line)
            continue
        records = [r for i, r in enumerate(library.read(line["id"]), first) if clusters.keep(i)]
        yield from _files(records, shape) if form == "files" else _strings(records, shape)
    if versions:
        yield from _changes(library, versions, shape)


def write(documents: Iterable[dict[str, Any]], path: Path) -> tuple[int, int]:
    """JSON lines, zstd if the name ends in .zst, whole or not at all; returns how many and their bytes before compression. Raises
    IsADirectoryError for a folder."""
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "the documents go to a file, and this is a folder; name a file", str(path)
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    count = size = 0
    packer = zstandard.ZstdCompressor(LEVEL)
    with replacing(path) as file, packer.stream_writer(file) if path.suffix == ".zst" else file as target:
        for document in documents:
            line = json.dumps(document).encode() + b"\n"
            target.write(line)
            count, size = count + 1, size + len(line)
    return count, size


def _files(records: list[TextRecord], shape: ExportShape) -> Iterator[dict[str, Any]]:
    """`pieces` instead of `text` where a document is cut: text, and {"special": name} which no text can forge."""
    for record in records:
        about = {
            **_about(record),
            "path": record.path,
            "language": record.language,
            "licence": record.licence.expression,
        }
        pieces = fim(
            record.text,
            record.digest,
            shape.fim_tokens,
            seed=shape.seed,
            rate=shape.fim_rate,
            language=record.language,
            longest_chars=shape.fim_longest_chars,
        )
        if len(pieces) == 1:
            yield {"text": record.text, **about}
        else:
            yield {"pieces": [p if isinstance(p, str) else {"special": p.token} for p in pieces], **about}


def _strings(records: list[TextRecord], shape: ExportShape) -> Iterator[dict[str, Any]]:
    for found in _fitting(records, shape):
        yield {
            "text": found.text,
            **_about(records[0]),
            "paths": list(found.paths),
            "bucket_tokens": found.bucket_tokens,
        }


def _fitting(records: list[TextRecord], shape: ExportShape) -> list[ProjectString]:
    """The project's strings, cut finer until each fits the longest bucket as the tokenizer counts."""
    longest, ratio = max(shape.buckets), shape.chars_per_token
    while True:
        found = project_strings(
            records, order=shape.order, chars_per_token=ratio, seed=shape.seed, buckets=shape.buckets
        )
        # A token is a byte at least: what has no more bytes need not be counted.
        long = [string.text for string in found if len(string.text.encode("utf-8", "surrogatepass")) > longest]
        if shape.counts is None or max(shape.counts(long), default=0) <= longest:
            return found
        ratio *= FINER


def _changes(library: Library, versions: list[dict[str, Any]], shape: ExportShape) -> Iterator[dict[str, Any]]:
    """`versions` are those of one project, newest first, as every source lists them."""
    newer: list[TextRecord] | None = None
    for line in versions:
        records = list(library.read(line["id"]))
        if newer is not None:
            yield from map(_change, release_diffs(records, newer, form=shape.edits))
        if records:
            found, _ = patch_records({record.path: record.text for record in records}, records[0])
            yield from map(_change, found)
        newer = records


def _change(record: TextRecord) -> dict[str, Any]:
    return {"text": record.text, **_about(record), "path": record.path, "licence": record.licence.expression}


def _about(record: TextRecord) -> dict[str, str]:
    return {"source": record.source, "project": record.project, "version": record.version, "kind": record.kind}
