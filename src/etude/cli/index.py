"""`etude index`: build a folder's code index, ask it, look at it, serve it to many sessions."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.agent.code_index.hit import Hit
    from etude.agent.code_index.index import Index
    from etude.agent.code_index.update import Progress

app = typer.Typer(no_args_is_help=True, help="Search code by what it does: build, ask and serve a folder's index.")

Folder = Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder. Default: this one.")]
Root = Annotated[Path, typer.Option("--in", metavar="DIR", help="The folder. Default: this one.")]
StoreAt = Annotated[
    Path | None, typer.Option("--store", metavar="DIR", help="Folder of the index. Default: in the user's cache.")
]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Processes that read. Default: one a core.")]
EmbedUrl = Annotated[
    str | None,
    typer.Option(
        "--embed-url", metavar="URL", help="Rank by embeddings of this OpenAI-compatible endpoint (…/v1) too."
    ),
]
EmbedModel = Annotated[str | None, typer.Option("--embed-model", metavar="NAME", help="The embedder's name there.")]

# Often enough to look alive on a terminal; a log is scrolled through.
REFRESH_S, LOG_EVERY_S = 0.2, 5.0


class Misused(Exception):
    """Options that do not go together."""


@app.command()
def build(
    folder: Folder = Path("."),
    store: StoreAt = None,
    workers: Workers = 0,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="List every file that was left out, with the reason.")
    ] = False,
    embed_url: EmbedUrl = None,
    embed_model: EmbedModel = None,
    json: Json = False,
) -> Answer:
    """Index a folder, or bring its index up to date. Honours .gitignore; what is left out is counted with its reason."""
    index = _index(folder, store, embed_url, embed_model)
    report = index.update(workers=workers, progress=_progress("indexing"))
    lines = [
        f"{index.root}: {report.files:,} files, {report.chunks:,} chunks; "
        f"{report.indexed:,} read again, {report.removed:,} gone, {report.seconds:.1f} s"
    ]
    lines += [f"  left out: {_counted(report.skipped)}"] if report.skipped else []
    document: dict[str, Any] = {"root": str(index.root), **report.to_json()}
    if skipped:
        document["skipped_paths"] = index.skip_reasons()
        lines += [f"  {path}: {reason}" for path, reason in document["skipped_paths"].items()]
    return Answer(document, "\n".join(lines))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="Description of what the code does, or its name.")],
    root: Root = Path("."),
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of results.")] = 10,
    under: Annotated[
        str | None, typer.Option("--under", metavar="PATH", help="Only in this folder or file of DIR.")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", metavar="NAME", help="Only files in this language.")
    ] = None,
    update: Annotated[bool, typer.Option("--update/--no-update", help="Update the index first.")] = True,
    store: StoreAt = None,
    embed_url: EmbedUrl = None,
    embed_model: EmbedModel = None,
    json: Json = False,
) -> Answer:
    """Find the places that answer a question, best first."""
    index = _index(root, store, embed_url, embed_model)
    if update:
        index.update(progress=_progress("indexing"))
    began = time.perf_counter()
    hits = index.search(query, limit=limit, under=under, language=language)
    took_ms = round((time.perf_counter() - began) * 1e3, 2)
    document = {"query": query, "took_ms": took_ms, "hits": [hit.to_json() for hit in hits]}
    return Answer(document, "\n\n".join(map(_shown, hits)) or "nothing found")


@app.command()
def stats(folder: Folder = Path("."), store: StoreAt = None, json: Json = False) -> Answer:
    """Print what is indexed: files by language, chunks, bytes on disk, and what was left out."""
    found = _index(folder, store, None, None).stats()
    lines = [
        f"{found['root']}: {found['files']:,} files, {found['chunks']:,} chunks",
        f"  {found['store']}: generation {found['generation']}, {found['segments']} segments, {found['store_bytes'] / 1e6:.1f} MB",
        f"  languages: {_counted(found['languages'])}",
        f"  left out: {_counted(found['skipped']) or 'nothing'}",
    ]
    return Answer(found, "\n".join(lines))


@app.command()
def serve(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="The folders to serve.")],
    socket: Annotated[Path, typer.Option("--socket", metavar="PATH", help="The unix socket to listen at.")],
    embed_url: EmbedUrl = None,
    embed_model: EmbedModel = None,
    json: Json = False,
) -> Answer:
    """Serve folders' indexes over a unix socket, JSON lines, until stopped. Each connection has an overlay of its own."""
    from etude.agent.code_index.service import Service

    indexes = [_index(folder, None, embed_url, embed_model) for folder in folders]
    for index in indexes:
        index.update(progress=_progress(f"indexing {index.root.name}"))
    with Service(socket, indexes) as service:
        print(f"serving {', '.join(service.indexes)} at {socket}", file=sys.stderr, flush=True)
        try:
            service.serve_forever()
        except KeyboardInterrupt:  # how a person or a supervisor ends it
            print("stopped", file=sys.stderr, flush=True)
    return Answer({"socket": str(socket), "roots": list(service.indexes)}, "")


def _index(folder: Path, store: Path | None, url: str | None, model: str | None) -> Index:
    from etude.agent.code_index.embedder import EndpointEmbedder
    from etude.agent.code_index.index import Index

    if (url is None) != (model is None):
        raise Misused("--embed-url and --embed-model go together: where the embedder is and what it is called there")
    return Index(folder, store, embedder=EndpointEmbedder(url, model) if url and model else None)


def _progress(what: str) -> Progress:
    """Tells on stderr how far it is: one line on a terminal, now and then one in a log, nothing for what is quick."""
    began = last = time.monotonic()
    live = sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (REFRESH_S if live else LOG_EVERY_S) and not (live and done == total):
            return
        last = now
        text = f"{what}: {done:,} of {total:,}, {now - began:.0f} s"
        print(f"\r{text}" if live else text, end="\n" if not live or done == total else "", file=sys.stderr, flush=True)

    return tell


def _shown(hit: Hit) -> str:
    name = f"  {hit.kind} {hit.symbol}" if hit.symbol else ""
    lines = hit.snippet.split("\n")
    body = "\n".join(f"{number:6}  {line}" for number, line in enumerate(lines, hit.snippet_line))
    return f"{hit.path}:{hit.start_line}-{hit.end_line}{name}  ({hit.score:.1f})\n{body}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
