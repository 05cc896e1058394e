"""Stage corpus: real code and exercise text → one tokenizer for the whole run, and token shards to train and to judge by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.collection import collect
from etude.corpus.document import Document
from etude.corpus.shards import write_shards
from etude.corpus.tokenizer import encode_documents, load_tokenizer, train_tokenizer
from etude.factory.exercises.documents import documents
from etude.run.stage import Context

TRAIN, HELDOUT = "train", "heldout"  # inside the stage's folder: token shards


def run(context: Context) -> None:
    """Leaves `tokenizer.json`, the shards `train/` and `heldout/`, and `summary.json`."""
    found = collect(context.recipe.corpus, exercise_documents(context))
    context.log.note(context.stage, found.summary())
    tokenizer = _tokenizer(context, found.train)
    train = write_shards(context.folder / TRAIN, _encoded(tokenizer, found.train))
    if found.heldout:
        write_shards(context.folder / HELDOUT, _encoded(tokenizer, found.heldout))
    context.summarize(
        {
            "vocabulary": tokenizer.get_vocab_size(),
            "documents": len(found.train),
            "tokens": train.total_tokens,
            "bytes": dict(found.accepted_bytes),
            "refused": dict(found.refused),
            "heldout_documents": len(found.heldout),
            "heldout_bytes": sum(document.byte_count for document in found.heldout),
        }
    )


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


def _encoded(tokenizer: Tokenizer, found: Iterable[Document]) -> Iterator[list[int]]:
    return encode_documents(tokenizer, (document.text for document in found))
