"""Stage base: read code and exercise text, train the tokenizer, train the model from scratch (or from `model.init`).

Leaves `base/checkpoint`, a Hugging Face directory with the tokenizer that every later stage uses, and the training state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.collection import Collection, collect
from etude.corpus.document import Document
from etude.corpus.tokenizer import encode_documents, load_tokenizer, train_tokenizer
from etude.factory.exercises.documents import documents as exercise_texts
from etude.model.checkpoint import save_checkpoint
from etude.model.count import count_parameters
from etude.model.init import new_model
from etude.recipe.recipe import Recipe
from etude.run.stage import Context
from etude.train.evaluate import evaluate
from etude.train.pretrain import run_pretrain


def run(context: Context) -> None:
    """Everything is a function of the recipe and this machine's files, so a resumed run reads the same documents again."""
    recipe = context.recipe
    context.log.note(context.stage, "reading code and exercises")
    collection = collect(recipe.corpus, _exercises(recipe))
    context.log.note(context.stage, collection.summary())
    vocabulary = _tokenizer_folder(context.folder / "tokenizer", recipe, collection)
    tokenizer = load_tokenizer(vocabulary)
    model = new_model(recipe.model, tokenizer.get_vocab_size())
    result = run_pretrain(recipe.pretrain, model, _ids(tokenizer, collection.train), context.folder, context.log)
    heldout = evaluate(
        model,
        zip(_ids(tokenizer, collection.heldout), [d.byte_count for d in collection.heldout], strict=True),
        recipe.pretrain.row_tokens,
    )
    save_checkpoint(model, context.folder / "checkpoint", vocabulary)
    context.summarize(
        {
            "parameters": count_parameters(model.config).total,
            "vocabulary": tokenizer.get_vocab_size(),
            "documents": len(collection.train),
            "bytes": dict(collection.accepted_bytes),
            "refused": dict(collection.refused),
            "steps": result.steps,
            "tokens": result.tokens,
            "loss": result.loss,
            "heldout": None if heldout is None else vars(heldout),
        }
    )


def _exercises(recipe: Recipe) -> Iterator[Document]:
    texts = itertools.islice(exercise_texts(recipe.exercises, recipe.corpus.seed), recipe.run.exercise_documents)
    return (Document(text, "exercise", f"{number:06d}") for number, text in enumerate(texts))


def _tokenizer_folder(folder: Path, recipe: Recipe, collection: Collection) -> Path:
    """Where the tokenizer is: with the checkpoint if the run continues from one, else trained once and kept here."""
    if recipe.model.init:
        return Path(recipe.model.init)
    if not (folder / "tokenizer.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".tokenizer.json"
        train_tokenizer(collection.train, SPECIAL_TOKENS, recipe.corpus).save(str(draft))
        draft.replace(folder / "tokenizer.json")
    return folder


def _ids(tokenizer: Tokenizer, documents: Sequence[Document]) -> Iterator[list[int]]:
    return encode_documents(tokenizer, (document.text for document in documents))
