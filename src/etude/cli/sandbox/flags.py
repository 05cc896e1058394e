"""What kind of sandbox a verb is to make: the flags that `run` and `shell` share, and the spec that comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from etude.sandbox.settings import SandboxSettings
    from etude.sandbox.spec import SandboxSpec

MAX_FILE_BYTES = 1 << 20  # what a person wants to try fits; a data set by mistake does not

Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        help="Back end; auto takes the first supported one that works here. Experimental: gvisor, runc, process. "
        "MODULE:NAME is one of your own.",
    ),
]
Folder = Annotated[
    Path | None, typer.Option("--files", metavar="DIR", help="Copy this folder's files into the sandbox first.")
]
Image = Annotated[
    str,
    typer.Option(
        "--image", help="Root file system: an image of the layer store. Default: the host's system folders, read-only."
    ),
]
Memory = Annotated[int, typer.Option("--memory-mb", min=32, help="Memory of the sandbox.")]
Pids = Annotated[int, typer.Option("--pids", min=4, help="Processes at once.")]
Disk = Annotated[int, typer.Option("--disk-mb", min=1, help="Limit of written data in MB.")]
Cpus = Annotated[float | None, typer.Option("--cpus", min=0.01, help="CPU limit in cores.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="HOST", help="Let it reach this host (.HOST: and all below), by a policed proxy; repeatable."
    ),
]
Root = Annotated[
    bool, typer.Option("--root", help="65,536 users inside, root among them, none of them anybody outside.")
]


def spec(
    folder: Path | None, image: str, memory_mb: int, pids: int, disk_mb: int, cpus: float | None,
    allow: list[str] | None, root: bool,
) -> SandboxSpec:  # fmt: skip
    from etude.sandbox.spec import Network, SandboxSpec

    return SandboxSpec(
        files=_files(folder),
        image=image,
        memory_mb=memory_mb,
        pids=pids,
        disk_mb=disk_mb,
        cpus=cpus,
        network=Network("allowlist", tuple(allow)) if allow else Network(),
        uid_mode="range" if root else "single",
        warm_python=False,
    )


def settings(backend: str) -> SandboxSettings:
    """The recipe's, with the back end asked for. Raises UserError for one that there is not."""
    from etude.core.plugins import is_import_path
    from etude.pipeline.recipe.recipe import Recipe
    from etude.sandbox.errors import UserError
    from etude.sandbox.settings import BACKENDS, REMOVED_BACKENDS

    if backend in REMOVED_BACKENDS:
        raise UserError(f"--backend {backend}: there is no such back end: {REMOVED_BACKENDS[backend]}")
    if backend not in BACKENDS and not is_import_path(backend):
        raise UserError(
            f"--backend {backend}: there is no such back end; take one of {', '.join(BACKENDS)}, or module:name of your own"
        )
    return Recipe().sandbox.model_copy(update={"backend": backend})


def _files(folder: Path | None) -> dict[str, bytes]:
    if folder is None:
        return {}
    if not folder.is_dir():
        raise NotADirectoryError(f"--files {folder}: there is no such folder")
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    large = [p for p in paths if p.stat().st_size > MAX_FILE_BYTES]
    if large:
        raise ValueError(f"--files: {large[0]} is larger than {MAX_FILE_BYTES} bytes; leave it out")
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}
