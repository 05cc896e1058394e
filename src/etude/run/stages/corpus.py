"""Stage corpus: real code and exercise text → one tokenizer for the whole run, and token shards to train and to judge by."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.collection import collect
from etude.corpus.document import Document
from etude.corpus.lookup import lookup_documents
from etude.corpus.shards import write_shards
from etude.corpus.tokenizer import encode_documents, load_tokenizer, train_tokenizer
from etude.factory.exercises.documents import documents
from etude.run.stage import Context

TRAIN, HELDOUT = "train", "heldout"  # inside the stage's folder: a folder of token shards for each source and form
EXERCISES = "exercises"


def run(context: Context) -> None:
    """Leaves `tokenizer.json`, shards in `train/<source>.<form>/` and `heldout/`, and `summary.json`."""
    found = collect(context.recipe.corpus, exercise_documents(context))
    context.log.note(context.stage, found.summary())
    tokenizer = _tokenizer(context, found.train)
    shards: dict[str, dict[str, int]] = {}
    for split, documents_of, prefix in ((TRAIN, found.train, ""), (HELDOUT, found.heldout, "heldout_")):
        for name, texts in _by_folder(context, tokenizer, documents_of).items():
            written = write_shards(context.folder / split / name, encode_documents(tokenizer, texts))
            size = sum(len(text.encode()) for text in texts)
            figures = {"documents": len(texts), "tokens": written.total_tokens, "bytes": size}
            shards.setdefault(name, {}).update({prefix + key: value for key, value in figures.items()})
    context.summarize(
        {
            "vocabulary": tokenizer.get_vocab_size(),
            "shards": shards,
            "bytes": dict(found.accepted_bytes),
            "refused": dict(found.refused),
        }
    )


def _by_folder(context: Context, tokenizer: Tokenizer, found: list[Document]) -> dict[str, list[str]]:
    """Texts by `<source>.<form>`; a source of files is one project."""
    sources: dict[str, list[Document]] = {}
    for document in found:
        name = EXERCISES if document.source == "exercise" else document.source.removeprefix("folder:")
        sources.setdefault(name, []).append(document)
    folders = {f"{name}.files": [document.text for document in held] for name, held in sources.items()}
    for name, held in sources.items():
        if name != EXERCISES:
            folders[f"{name}.projects"] = ["\n\n".join(document.text for document in held)]
            files = ((document.name, document.text) for document in held)
            length = context.recipe.pretrain.long.row_tokens
            lookups = list(lookup_documents(files, lambda text: len(tokenizer.encode(text)), length, 0))
            folders |= {f"{name}.lookups": lookups} if lookups else {}
    return folders


def exercise_documents(context: Context) -> Iterator[Document]:
    """Text of the training exercises as the corpus takes it: only training templates and functions occur."""
    texts = documents(context.recipe.exercises, seed=context.recipe.corpus.seed)
    for number, text in enumerate(islice(texts, context.recipe.corpus.exercise_documents)):
        yield Document(text, "exercise", f"{number:06d}")


def _tokenizer(context: Context, train: list[Document]) -> Tokenizer:
    """The initial checkpoint's tokenizer if the run continues one, else trained here."""
    if context.recipe.model.init:
        tokenizer = load_tokenizer(Path(context.recipe.model.init))
    else:
        tokenizer = train_tokenizer(train, SPECIAL_TOKENS, context.recipe.corpus)
    tokenizer.save(str(context.folder / "tokenizer.json.part"))
    (context.folder / "tokenizer.json.part").rename(context.folder / "tokenizer.json")
    return load_tokenizer(context.folder)
