"""From sources to documents: cleaned, without duplicates, in a seeded order, split by hash into training and held-out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from etude.corpus.cleaning import Refused, clean
from etude.corpus.document import Document
from etude.corpus.settings import CorpusSettings
from etude.corpus.sources.files import source_files


@dataclass(frozen=True)
class Collection:
    """What was read. `refused` counts files by reason; `accepted_bytes` by source."""

    train: list[Document]
    heldout: list[Document]
    refused: Counter[str] = field(default_factory=Counter)
    accepted_bytes: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """One line for the log."""
        accepted = ", ".join(f"{source} {count:,} bytes" for source, count in sorted(self.accepted_bytes.items()))
        refused = ", ".join(f"{count} {reason}" for reason, count in sorted(self.refused.items())) or "none"
        return f"{len(self.train)} documents, {len(self.heldout)} held out; {accepted}; refused: {refused}"


def collect(settings: CorpusSettings, extra: Iterable[Document] = ()) -> Collection:
    """Files of all sources up to `max_code_bytes`, plus every extra document (exercises; the caller bounds those)."""
    refused: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    documents = _from_files(settings, refused, accepted)
    seen = {document.digest for document in documents}
    for document in extra:
        if document.digest in seen:
            refused["duplicate"] += 1
            continue
        seen.add(document.digest)
        accepted[document.source] += document.byte_count
        documents.append(document)
    documents.sort(key=lambda document: document.rank(settings.seed))
    train = [d for d in documents if not d.held_out(settings.heldout_share)]
    heldout = [d for d in documents if d.held_out(settings.heldout_share)]
    return Collection(train, heldout, refused, accepted)


def _from_files(settings: CorpusSettings, refused: Counter[str], accepted: Counter[str]) -> list[Document]:
    # The seeded order is fixed before anything is read, so that the byte cap takes a fair sample of all folders.
    files = sorted(source_files(settings), key=lambda f: Document("", f.source, f.name).rank(settings.seed))
    documents: dict[str, Document] = {}
    room = settings.max_code_bytes
    for file in files:
        if room <= 0:
            refused["over max_code_bytes"] += 1
            continue
        try:
            # A huge file is refused by its size, before it is read into memory.
            if file.path.stat().st_size > settings.max_file_bytes:
                raise Refused("too large")
            text = clean(file.path.read_bytes(), settings, python=file.python)
        except Refused as refusal:
            refused[str(refusal)] += 1
            continue
        except OSError:
            refused["unreadable"] += 1
            continue
        document = Document(text, file.source, file.name)
        if document.digest in documents:
            refused["duplicate"] += 1
            continue
        documents[document.digest] = document
        accepted[file.source] += document.byte_count
        room -= document.byte_count
    return list(documents.values())
