"""`etude corpus`: build a library of code from the recipe's sources, see what is in it and why the rest is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.former import print_present_spelling
from etude.cli.option import Json, Overrides, Recipes

app = typer.Typer(
    no_args_is_help=True, help="Build a library of code from folders, repositories and packages, and look into it."
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `etude corpus build` has written.")]
SHOWN_CHARS = 4_000  # of one text: two screens
WINDOW_TOKENS = 2048  # long enough to see past a file, short enough for a processor
KINDS_SHOWN = 12  # of a count: a line or two


@app.command()
def build(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder of the library.")] = Path(
        "runs/corpus"
    ),
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="Downloads, shared by builds. Default: DIR/downloads.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the projects that would be read, read none.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Read every source that the recipe names under [corpus.sources.<name>]; goes on where an earlier build was stopped."""
    from etude.core.events.live import LiveView
    from etude.core.events.log import EventLog
    from etude.learn.corpus.build import LibraryBuilder
    from etude.learn.corpus.overview import overview
    from etude.pipeline.recipe.read import find_recipe, read_recipe

    settings = read_recipe([find_recipe(name) for name in recipes or []], overrides or []).corpus
    log = EventLog(out / "events.jsonl")
    builder = LibraryBuilder(settings, out, cache or out / "downloads", log)
    if dry_run:
        refs = [{"id": ref.id, "released": ref.released} for ref in builder.refs()]
        return Answer({"projects": refs}, "\n".join(f"{ref['id']} {ref['released']}".rstrip() for ref in refs))
    with LiveView(out / "events.jsonl"):
        builder.run()
    return _counts(out, overview(out))


@app.command("stats", hidden=True)
def former_stats(folder: Folder, json: Json = False) -> Answer:
    """Count what a library holds: by source, language and licence, why files were refused, and how many are copies."""
    print_present_spelling("corpus stats", "corpus show --summary")
    return _summary(folder)


def _summary(folder: Path) -> Answer:
    from etude.learn.corpus.overview import overview

    return _counts(folder, overview(folder))


@app.command()
def show(
    folder: Folder,
    number: Annotated[
        int | None, typer.Option("--number", min=0, help="Number of the text. Default: a random one.")
    ] = None,
    language: Annotated[str, typer.Option("--language", help="Show a random text in this language.")] = "",
    summary: Annotated[
        bool,
        typer.Option("--summary", help="Count texts by source, language and licence, refusals by reason, and copies."),
    ] = False,
    json: Json = False,
) -> Answer:
    """Show one text of a library with its provenance, or with --summary what the library holds."""
    if summary:
        if number is not None or language:
            raise typer.BadParameter("--summary counts the whole library; leave out --number and --language")
        return _summary(folder)
    from etude.learn.corpus.build import COPIES
    from etude.learn.corpus.choose import choose
    from etude.learn.corpus.dedup.clusters import Clusters

    found, place = choose(folder, number, language)
    kept = Clusters.load(folder / COPIES).cluster(place) if (folder / COPIES).is_file() else None  # None: not known yet
    document = {"number": place, "kept_instead": kept, "digest": found.digest, **asdict(found)}
    head = (
        f"{place}: {found.id}, {found.language or 'no language'}, {found.licence.expression or 'no licence'} "
        f"({found.licence.evidence}), {len(found.text):,} characters"
    )
    if kept not in (None, place):
        head += f"; a copy of {kept}"
    cut = "" if len(found.text) <= SHOWN_CHARS else f"\n… {len(found.text) - SHOWN_CHARS:,} characters more"
    return Answer(document, f"{head}\n\n{found.text[:SHOWN_CHARS]}{cut}")


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSON lines; compressed if it ends in .zst.")],
    form: Annotated[str, typer.Option("--form", help="Form of the documents: files, projects or changes.")] = "files",
    split: Annotated[str, typer.Option("--split", help="Split to export: train or heldout.")] = "train",
    fim: Annotated[float, typer.Option("--fim", min=0, max=1, help="Share of files cut for fill-in-the-middle.")] = 0.0,
    order: Annotated[
        str, typer.Option("--order", help="Order of a project's files: dependencies, path, random or target.")
    ] = "dependencies",
    edits: Annotated[
        str, typer.Option("--edits", help="Format of changes: unified diffs or search-and-replace blocks.")
    ] = "unified",
    seed: Annotated[int, typer.Option("--seed", help="Decides what is cut, and random orders.")] = 0,
    json: Json = False,
) -> Answer:
    """Write a library's texts as training documents: file by file, a project as one long text, or changes between releases."""
    from etude.learn.corpus.export import EDITS, FORMS, SPLITS, ExportShape, export, write
    from etude.learn.corpus.shape.project_string import ORDERS

    for name, value, known in (
        ("--form", form, FORMS),
        ("--split", split, SPLITS),
        ("--order", order, ORDERS),
        ("--edits", edits, EDITS),
    ):
        if value not in known:
            raise typer.BadParameter(f"{name} {value!r}: one of {', '.join(known)}")
    shape = ExportShape(fim_rate=fim, order=order, edits=edits, seed=seed)  # type: ignore[arg-type]  # checked above
    count, size = write(export(folder, form, split, shape), out)  # type: ignore[arg-type]
    return Answer({"file": str(out), "documents": count, "bytes": size}, f"{out}: {count:,} documents, {_mb(size)}")


@app.command()
def fingerprint(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the suite, which the message shows when a text is refused for it."
        ),
    ],
    texts: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files with texts that no training document may contain: patches, tests, statements.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The fingerprint file, for corpus.library.fingerprints.")
    ],
    projects: Annotated[
        list[str] | None, typer.Option("--project", help="Refuse this project as a whole; repeatable.")
    ] = None,
    json: Json = False,
) -> Answer:
    """Write a suite's fingerprints: hashes from which no text can be read back, and by which `build` refuses texts that hold one."""
    from etude.core.fingerprint.publish import write_fingerprints

    found = write_fingerprints(out, suite, (path.read_text(encoding="utf-8") for path in texts), projects or [])
    short = f"; {found.too_short} too short to be searched for" if found.too_short else ""
    return Answer(
        {"file": str(out), **asdict(found)}, f"{out}: {found.texts} texts, {found.grams:,} fingerprints{short}"
    )


Checkpoints = Annotated[
    list[Path],
    typer.Argument(metavar="CHECKPOINT...", help="Hugging Face directories with tokenizer.json, or models' names."),
]
Code = Annotated[
    Path, typer.Option("--of", metavar="DIR", help="A folder of code, or a library: its held-out projects.")
]
Window = Annotated[
    int | None,
    typer.Option("--window", help="Tokens read at once. Default: all that the checkpoint can, at most 2048."),
]
Stride = Annotated[int | None, typer.Option("--stride", help="Tokens the window moves by. Default: half of it.")]


@app.command()
def perplexity(
    checkpoints: Checkpoints, of: Code, window: Window = None, stride: Stride = None, json: Json = False
) -> Answer:
    """Codebase perplexity: all files in alphabetical order, negative log-likelihood summed over a rolling window; lower is better."""
    from etude.learn.corpus.codebase import codebase
    from etude.learn.model.named_checkpoint import checkpoint_folder

    texts = [text for _, text in codebase(of)]
    sizes = [len(text.encode()) for text in texts]
    rows = [_perplexity_row(checkpoint_folder(one), texts, sizes, window, stride) for one in checkpoints]
    lines = [f"{of}: {len(texts):,} files, {_mb(sum(sizes))}"]
    for row in rows:
        low, high = row["ci95"]
        lines.append(
            f"  {row['checkpoint']}: {row['bits_per_byte']:.4f} bits a byte [{low:.4f}, {high:.4f}], {row['nats']:,.0f} nats in all, "
            f"perplexity {row['perplexity']:.2f} a token, window {row['window']}"
        )
    return Answer({"of": str(of), "files": len(texts), "bytes": sum(sizes), "checkpoints": rows}, "\n".join(lines))


def _perplexity_row(
    folder: Path, texts: list[str], sizes: list[int], window: int | None, stride: int | None
) -> dict[str, Any]:
    """One checkpoint's figures over the texts, whose sizes are in bytes."""
    from etude.learn.corpus.tokenizer import encode_documents, load_tokenizer
    from etude.learn.corpus.tokenizer_check import check_belongs
    from etude.learn.model.checkpoint import load_checkpoint
    from etude.learn.train.perplexity import codebase_perplexity

    model, tokenizer = load_checkpoint(folder), load_tokenizer(folder)
    check_belongs(folder, tokenizer)
    length = window or min(model.config.context_length, WINDOW_TOKENS)
    step = stride or length // 2
    found = codebase_perplexity(model, list(encode_documents(tokenizer, texts)), sizes, window=length, stride=step)
    return {
        "checkpoint": str(folder), "bits_per_byte": found.bits_per_byte, "ci95": found.ci95(), "nats": found.total_nats,
        "perplexity": found.perplexity, "tokens": found.tokens, "window": length, "stride": step,
    }  # fmt: skip


def _counts(folder: Path, found: dict[str, Any]) -> Answer:
    """The figures as a person reads them: what there is most of first."""
    lines = [f"{folder}"]
    for name, source in found["sources"].items():
        lines.append(
            f"  {name}: {source['projects']:,} projects, {source['texts']:,} texts, "
            f"{_mb(source['kept_bytes'])} kept of {_mb(source['raw_bytes'])}"
        )
    lines += [f"  {title}: {_most(found[key], show)}" for key, title, show in COUNTS if found[key]]
    if found["left_out"]:
        lines += [f"  left out: {project}: {reason}" for project, reason in found["left_out"].items()]
    lines += [f"  left out: {n:,} projects of {name}: over max_bytes" for name, n in found["over_max_bytes"].items()]
    lines.append(f"  held out: {len(found['heldout_projects'])} projects")
    copies = found["copies"]
    if copies is None:
        lines.append("  not finished: run the same `etude corpus build` again and it goes on")
    else:
        lines.append(
            f"  {copies['kept']:,} of {copies['texts']:,} texts without their copies ({copies['clusters']:,} clusters)"
        )
    return Answer({"folder": str(folder), **found}, "\n".join(lines))


def _most(counts: dict[str, int], show: Callable[[int], str]) -> str:
    """The first few of a count, and how many kinds more there are."""
    first = list(counts.items())[:KINDS_SHOWN]
    more = f", {len(counts) - KINDS_SHOWN} more kinds" if len(counts) > KINDS_SHOWN else ""
    return ", ".join(f"{name or 'none'} {show(count)}" for name, count in first) + more


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


# What `stats` prints of the manifest's sums: key, title, and how a figure reads.
COUNTS = (
    ("bytes", "languages", _mb),
    ("licences", "licences (files)", "{:,}".format),
    ("refused", "refused (files)", "{:,}".format),
    ("redactions", "placeholders", "{:,}".format),
)
