"""`etude tokenizer`: train one on text of one's own, extend one that a checkpoint has, see whether one is sound."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

app = typer.Typer(no_args_is_help=True, help="Train a tokenizer, extend one and its checkpoint, check one.")

On = Annotated[
    list[Path] | None, typer.Option("--on", metavar="DIR", help="A library or a folder of text; repeatable.")
]
Tokenizer = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder with tokenizer.json; a checkpoint is one, or its name.")
]
Target = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Output folder of tokenizer.json or of the checkpoint.")
]


class NothingToDo(Exception):
    """The command names no text to learn from, or nothing to add."""


@app.command()
def train(
    out: Target,
    on: On = None,
    size: Annotated[int, typer.Option("--size", min=320, max=200_000, help="Entries, special tokens included.")] = 768,
    json: Json = False,
) -> Answer:
    """Train a byte-level tokenizer with the chat tokens first: what `etude run` does for itself."""
    from etude.agent.chat.special import SPECIAL_TOKENS
    from etude.learn.corpus.extension import compression
    from etude.learn.corpus.tokenizer import train_tokenizer

    learnt = _read(on, "train")
    tokenizer = train_tokenizer(learnt, SPECIAL_TOKENS, size)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    found = {
        "entries": tokenizer.get_vocab_size(),
        "texts": len(learnt),
        "bytes_per_token": compression(tokenizer, learnt),
    }
    return Answer(
        {"folder": str(out), **found},
        f"{out}: {found['entries']:,} entries from {len(learnt):,} texts, {found['bytes_per_token']:.3f} bytes a token on them",
    )


@app.command()
def extend(
    folder: Tokenizer,
    out: Target,
    chat: Annotated[bool, typer.Option("--chat", help="Add the tokens of the nano chat format.")] = False,
    fim: Annotated[bool, typer.Option("--fim", help="Add the fill-in-the-middle tokens.")] = False,
    token: Annotated[list[str] | None, typer.Option("--token", help="Add this special token; repeatable.")] = None,
    merges: Annotated[
        int, typer.Option("--merges", min=0, help="Number of merges to learn from the text of --on.")
    ] = 0,
    on: On = None,
    json: Json = False,
) -> Answer:
    """Add tokens to a tokenizer; old ids stay. If DIR is a checkpoint, its embedding and output head grow too and the whole checkpoint is written."""
    from etude.agent.chat.special import CHAT_TOKENS, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX
    from etude.learn.corpus.extension import compression, extend_tokenizer, spell_new_ids
    from etude.learn.corpus.merges import learn_merges
    from etude.learn.corpus.tokenizer import load_tokenizer
    from etude.learn.corpus.tokenizer_check import check
    from etude.learn.model.named_checkpoint import checkpoint_folder

    special = [*(CHAT_TOKENS if chat else ()), *((FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE) if fim else ()), *(token or [])]
    if not special and not merges:
        raise NothingToDo("name what to add: --chat, --fim, --token or --merges with --on")
    folder = checkpoint_folder(folder)
    old = load_tokenizer(folder)
    new = extend_tokenizer(old, special, learn_merges(old, _read(on, "train"), merges) if merges else ())
    found: dict[str, Any] = asdict(check(new, older=old))
    grown = spell_new_ids(old, new)
    found["added"] = len(grown)
    if on:
        judged = _read(on, "heldout")
        found["bytes_per_token"] = {"before": compression(old, judged), "after": compression(new, judged)}
    found["rows"] = _write(folder, out, new, grown, chat)
    lines = [f"{out}: {found['entries']:,} entries, {len(grown):,} of them new", *_findings(found)]
    if found["rows"]:
        lines.append(f"  the checkpoint has {found['rows']:,} rows now; new ones are means of what spelled them")
    return Answer({"folder": str(out), **found}, "\n".join(lines))


@app.command()
def check(
    folder: Tokenizer,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="DIR", help="Older tokenizer, whose ids must not have changed.")
    ] = None,
    on: On = None,
    json: Json = False,
) -> Answer:
    """Check a tokenizer: lost text, special tokens that text can forge, agreement with the checkpoint in the same folder, and compression."""
    from etude.learn.corpus.extension import compression
    from etude.learn.corpus.tokenizer import load_tokenizer
    from etude.learn.corpus.tokenizer_check import check, check_belongs
    from etude.learn.model.named_checkpoint import checkpoint_folder

    folder = checkpoint_folder(folder)
    tokenizer, older = load_tokenizer(folder), load_tokenizer(against) if against else None
    if (folder / "config.json").is_file():
        check_belongs(folder, tokenizer)
    judged = _read(on, "heldout") if on else []
    result = check(tokenizer, judged, older)
    found: dict[str, Any] = asdict(result)
    if judged:
        before = {"before": compression(older, judged)} if older else {}
        found["bytes_per_token"] = before | {"after": compression(tokenizer, judged)}
    head = f"{folder}: {found['entries']:,} entries, {found['special']} special"
    return Answer({"folder": str(folder), **found}, "\n".join([head, *_findings(found)]), code=0 if result.sound else 1)


def _write(folder: Path, out: Path, new: Any, grown: dict[int, list[int]], chat: bool) -> int:
    """tokenizer.json alone, or the checkpoint with it; returns the rows of the checkpoint, 0 if DIR is none."""
    if not (folder / "config.json").is_file():
        out.mkdir(parents=True, exist_ok=True)
        new.save(str(out / "tokenizer.json"))
        return 0
    from etude.agent.chat.special import BOS, END, PAD
    from etude.learn.model.card import Training
    from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint, token_ids
    from etude.learn.model.vocabulary import with_rows

    model = with_rows(load_checkpoint(folder, drafts=True), grown)
    marks = {"bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PAD} if chat else {}
    ids = token_ids(folder) | {key: new.token_to_id(token) for key, token in marks.items()}
    trained = Training(
        "tokenizer extend", f"{len(grown):,} new tokens, each from the mean of the tokens that spelled it"
    )
    save_checkpoint(model, out, tokenizer_from=folder, extra_config=ids, trained=trained, tokenizer=new)
    return model.config.vocab_size


def _read(folders: list[Path] | None, split: Any) -> list[str]:
    from etude.learn.corpus.codebase import texts

    if not folders:
        raise NothingToDo("name text to learn from: --on with a library or a folder")
    found = [text for folder in folders for _, text in texts(folder, split)]
    if not found:
        raise NothingToDo(f"{', '.join(map(str, folders))}: no text of the {split} side; name another folder")
    return found


def _findings(found: dict[str, Any]) -> list[str]:
    lines = [f"  {found['unreachable']:,} tokens that no text reaches"]
    if rate := found.get("bytes_per_token"):
        lines.append("  bytes a token on held-out text: " + ", ".join(f"{k} {v:.3f}" for k, v in rate.items()))
    for key, words in (
        ("lost", "text that does not come back"),
        ("forged", "special tokens that text makes"),
        ("moved", "moved ids"),
    ):
        lines += [f"  {words}: {', '.join(map(repr, found[key]))}"] if found[key] else []
    return lines
