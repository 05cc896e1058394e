"""Stage corpus: sources → a library → one tokenizer for the whole run, and token shards by source and form, to train and to judge by.

    library/                     what `etude corpus build` makes: every text with its provenance, every refusal with its reason
    suites/                      fingerprints of what the bench asks: documents that hold it are refused
    tokenizer.json
    train/<source>.<form>/       token shards of each of the sources and of the run's own exercises
    heldout/<source>.<form>/     the same of held-out projects (exercises: of held-out documents)
    samples.json                 some documents as a reader would see them

Killed anywhere it goes on: the library after the last project in its manifest, the shards after the last finished folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from etude.agent.chat.special import SPECIAL_TOKENS
from etude.learn.corpus.build import LibraryBuilder
from etude.learn.corpus.export import FORMS, SPLITS, ExportShape, Split, export
from etude.learn.corpus.fim_tokens import fim_tokens
from etude.learn.corpus.lookup import lookup_documents
from etude.learn.corpus.overview import overview
from etude.learn.corpus.sample import sample
from etude.learn.corpus.settings import EXERCISES
from etude.learn.corpus.sharding import Document, Encoder, length_buckets, samples, shard
from etude.learn.corpus.shards import TokenShards
from etude.learn.corpus.tokenizer import load_tokenizer, train_tokenizer
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.stage import Context, StageError, write_json
from etude.tasks.generate.exercises import published as exercises
from etude.tasks.generate.exercises.documents import documents
from etude.tasks.real import published as real

# Text of the training exercises as the corpus takes it: each once, split by hash into training and held-out.


def exercise_documents(recipe: Recipe) -> tuple[dict[Split, list[Document]], int]:
    """Documents by split, and how many were drawn twice and left out. Only training templates and functions occur."""
    found: dict[Split, list[Document]] = {"train": [], "heldout": []}
    seen: set[str] = set()
    repeated = 0
    for number, text in enumerate(
        islice(documents(recipe.exercises, seed=recipe.corpus.seed), recipe.corpus.exercise_documents)
    ):
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest in seen:
            repeated += 1
            continue
        seen.add(digest)
        split: Split = "heldout" if held_out(digest, recipe.corpus.exercise_heldout_share) else "train"
        found[split].append(
            {"text": text, "source": EXERCISES, "project": EXERCISES, "version": "", "path": f"{number:06d}"}
        )
    return found, repeated


def held_out(digest: str, share: float) -> bool:
    """A function of the text alone, so no run can leak it into another: the same answer on every machine."""
    return int(digest[:8], 16) < share * 2**32


TRAIN, HELDOUT = SPLITS  # inside the stage's folder
LIBRARY = "library"
SUITES = "suites"
SHOWN = 24  # documents in samples.json
CALIBRATION_CHARS = 200_000  # of text from which characters a token are measured
# A function is counted alone, cut and in its place; its neighbours come back while a window of them is used up.
COUNTS_KEPT = 20_000


def run(context: Context) -> None:
    """Leaves what the module's docstring lists, and `summary.json`."""
    init = context.recipe.model.init
    if init and context.recipe.corpus.fim_rate:
        fim_tokens(load_tokenizer(Path(init)))  # refused before a library is built for it
    library = _library(context)
    own, repeated = exercise_documents(context.recipe)
    learnt = [] if library is None else list(_texts(library, context))
    tokenizer = _tokenizer(context, learnt, [document["text"] for document in own[TRAIN]])
    encoder = Encoder(tokenizer)
    made: dict[str, dict[Split, TokenShards]] = {}
    for name, form, split, texts in _all(context, library, own, encoder, learnt):
        found = shard(context.folder / split / name, form, texts, encoder)
        if found is not None:
            made.setdefault(name, {})[split] = found
            context.log.note(context.stage, f"{name}, {split}: {len(found):,} documents, {found.total_tokens:,} tokens")
    if not any(TRAIN in splits for splits in made.values()):
        raise StageError(
            "the corpus has no text to train on: add a table [corpus.sources.<name>], or exercise_documents"
        )
    folders = [context.folder / TRAIN / name for name in made if TRAIN in made[name]]
    write_json(context.folder / "samples.json", samples(folders, SHOWN))
    about = None if library is None else overview(library)
    context.summarize(_summary(context, made, about, encoder.vocabulary, repeated))


def _library(context: Context) -> Path | None:
    """Built, or gone on with; None if the recipe names no source. Downloads outlive the stage's folder."""
    if not context.recipe.corpus.sources:
        context.log.note(
            context.stage, "the recipe names no source (corpus.sources): the exercises alone are learnt from"
        )
        return None
    folder = context.folder / LIBRARY
    corpus = context.recipe.corpus.model_copy(deep=True)
    corpus.library.fingerprints += [
        publish(context.folder / SUITES)[0] for publish in (exercises.publish, real.publish)
    ]
    LibraryBuilder(corpus, folder, context.run / "downloads", context.log).run()
    return folder


def _texts(library: Path, context: Context) -> Iterable[str]:
    """What merges are learnt from and lengths are measured on."""
    corpus = context.recipe.corpus
    return sample(
        (d["text"] for d in export(library, "files", TRAIN, ExportShape())), corpus.tokenizer_bytes, corpus.seed
    )


def _tokenizer(context: Context, learnt: list[str], own: list[str]) -> Tokenizer:
    """The initial checkpoint's tokenizer if the run continues one, else trained here."""
    target = context.folder / "tokenizer.json"
    if not target.is_file():
        if context.recipe.model.init:
            tokenizer = load_tokenizer(Path(context.recipe.model.init))
        else:
            corpus = context.recipe.corpus
            texts = [*learnt, *own * corpus.exercise_repeats]
            tokenizer = train_tokenizer(texts, SPECIAL_TOKENS, corpus.vocabulary_size)
        tokenizer.save(str(part := target.with_suffix(".part")))
        part.rename(target)
    return load_tokenizer(context.folder)


def _all(
    context: Context,
    library: Path | None,
    own: Mapping[Split, list[Document]],
    encoder: Encoder,
    learnt: list[str],
) -> Iterator[tuple[str, str, Split, Iterable[Document]]]:
    """Name, form, split and documents of every folder of shards."""
    for split in SPLITS:
        yield f"{EXERCISES}.files", "files", split, own[split]
    if library is None:
        return
    shape = _shape(context, encoder, learnt)
    for source in context.recipe.corpus.sources:
        for form in FORMS:
            for split in SPLITS:
                # Held-out files are judged whole, by every checkpoint alike.
                cut = (
                    shape
                    if split == TRAIN
                    else ExportShape(buckets=shape.buckets, counts=shape.counts, seed=shape.seed)
                )
                yield f"{source}.{form}", form, split, export(library, form, split, cut, source)
        for split in SPLITS if context.recipe.corpus.lookup_tokens else ():
            yield f"{source}.lookups", "lookups", split, _lookups(context, library, source, split, encoder)


def _lookups(context: Context, library: Path, source: str, split: Split, encoder: Encoder) -> Iterator[Document]:
    """Documents whose lines repeat text from far above, made of the source's functions."""
    files = (
        (d["path"], d["text"])
        for d in export(library, "files", split, ExportShape(), source)
        if d["language"] == "python"
    )
    length, seed = context.recipe.corpus.lookup_tokens, context.recipe.corpus.seed
    for text in lookup_documents(files, lru_cache(COUNTS_KEPT)(encoder.count), length, seed):
        yield {"text": text, "source": source}


def _shape(context: Context, encoder: Encoder, learnt: list[str]) -> ExportShape:
    corpus = context.recipe.corpus
    text = "".join(learnt)[:CALIBRATION_CHARS]
    per_token = len(text) / encoder.count(text) if text else ExportShape.chars_per_token
    marks = fim_tokens(encoder.tokenizer) if corpus.fim_rate else ExportShape.fim_tokens
    return ExportShape(
        fim_rate=corpus.fim_rate,
        fim_tokens=marks,
        fim_longest_chars=int(corpus.fim_longest_tokens * per_token),
        chars_per_token=per_token,
        buckets=(corpus.project_tokens,),
        counts=encoder.counts,
        seed=corpus.seed,
    )


def _summary(
    context: Context,
    made: Mapping[str, Mapping[Split, TokenShards]],
    about: dict[str, Any] | None,
    vocabulary: int,
    repeated: int,
) -> dict[str, Any]:
    forms: dict[str, list[TokenShards]] = {}
    for name, splits in made.items():
        forms.setdefault(name.rpartition(".")[2], []).extend(splits.values())
    return {
        "vocabulary": vocabulary,
        "shards": {
            name: _figures(splits, "", TRAIN) | _figures(splits, "heldout_", HELDOUT) for name, splits in made.items()
        },
        "weights": context.recipe.corpus.weights,
        "lengths": {form: length_buckets(shards) for form, shards in forms.items()},
        "refused": {"exercise drawn twice": repeated} if repeated else {},
        "library": about,
    }


def _figures(splits: Mapping[Split, TokenShards], prefix: str, split: Split) -> dict[str, int]:
    meta = splits[split].meta if split in splits else {}
    return {f"{prefix}{key}": meta.get(key, 0) for key in ("documents", "tokens", "bytes")}
