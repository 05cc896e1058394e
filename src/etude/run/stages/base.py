"""Stage base: real code and exercise text → one tokenizer for the whole run → a small model of the real architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.collection import Collection, collect
from etude.corpus.document import Document
from etude.corpus.tokenizer import encode_documents, load_tokenizer, train_tokenizer
from etude.factory.exercises.documents import documents
from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.model.count import count_parameters
from etude.model.init import new_model
from etude.run.stage import Context
from etude.train.evaluate import evaluate
from etude.train.pretrain import run_pretrain

CHECKPOINT = "checkpoint"  # inside a stage's folder: what the next stages load


def run(context: Context) -> None:
    """Leaves `checkpoint/` (a Hugging Face directory with tokenizer.json) and `summary.json`."""
    recipe = context.recipe
    found = _collection(context)
    context.log.note(context.stage, found.summary())
    tokenizer = _tokenizer(context, found.train)
    model = _model(context, tokenizer)
    result = run_pretrain(recipe.pretrain, model, _encoded(tokenizer, found.train), context.folder, context.log)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=context.folder)
    texts = zip(_encoded(tokenizer, found.heldout), found.heldout, strict=True)
    held = evaluate(model, ((ids, document.byte_count) for ids, document in texts))
    count = count_parameters(model.config)
    context.summarize(
        {
            "family": model.config.family,
            "parameters": count.total,
            "active_parameters": count.active,
            "vocabulary": tokenizer.get_vocab_size(),
            "documents": len(found.train),
            "bytes": dict(found.accepted_bytes),
            "refused": dict(found.refused),
            "steps": result.steps,
            "tokens": result.tokens,
            "loss": result.loss,
            "heldout_bits_per_byte": held.bits_per_byte if held else None,
        }
    )


def exercise_documents(context: Context) -> Iterator[Document]:
    """Text of the training exercises as the corpus takes it: only training templates and functions occur."""
    texts = documents(context.recipe.exercises, seed=context.recipe.corpus.seed)
    for number, text in enumerate(islice(texts, context.recipe.corpus.exercise_documents)):
        yield Document(text, "exercise", f"{number:06d}")


def _collection(context: Context) -> Collection:
    return collect(context.recipe.corpus, exercise_documents(context))


def _tokenizer(context: Context, train: list[Document]) -> Tokenizer:
    """The initial checkpoint's tokenizer if the run continues one, else trained here, once."""
    if context.recipe.model.init:
        source = Path(context.recipe.model.init)
        load_tokenizer(source).save(str(context.folder / "tokenizer.json"))
    elif not (context.folder / "tokenizer.json").is_file():
        trained = train_tokenizer(train, SPECIAL_TOKENS, context.recipe.corpus)
        trained.save(str(context.folder / "tokenizer.json.part"))
        (context.folder / "tokenizer.json.part").rename(context.folder / "tokenizer.json")
    return load_tokenizer(context.folder)


def _model(context: Context, tokenizer: Tokenizer) -> CausalLM:
    settings = context.recipe.model
    if settings.init:
        return load_checkpoint(Path(settings.init))
    return new_model(settings, tokenizer.get_vocab_size())


def _encoded(tokenizer: Tokenizer, found: Iterable[Document]) -> Iterator[list[int]]:
    return encode_documents(tokenizer, (document.text for document in found))
