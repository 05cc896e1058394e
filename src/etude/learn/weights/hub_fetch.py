"""What `etude model fetch OWNER/NAME` does: a checkpoint of the hub into the cache, or as a copy into a folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.learn.weights.adapter_folder import base_name, is_adapter
from etude.learn.weights.hub import HubCheckpoint, fetch, fetch_companions, require_space, resolve
from etude.learn.weights.hub_errors import hub_errors
from etude.learn.weights.hub_name import HubError, parse_hub_name
from etude.learn.weights.hub_progress import DownloadLines, readable_bytes


@dataclass(frozen=True)
class HubFetch:
    """A checkpoint, and what is or would be downloaded of it."""

    found: HubCheckpoint
    folder: Path
    files: int
    missing: int
    size: int
    missing_bytes: int
    dry_run: bool

    def document(self) -> dict[str, Any]:
        return {
            "repository": self.found.name.repository, "revision": self.found.name.revision, "commit": self.found.commit,
            "folder": str(self.folder), "files": self.files, "bytes": self.size, "missing_files": self.missing,
            "missing_bytes": self.missing_bytes, "dry_run": self.dry_run,
        }  # fmt: skip

    def text(self) -> str:
        what = f"{self.found.name} at commit {self.found.commit}"
        if self.dry_run:
            return f"{what}: {describe_download(self.files, self.size, self.missing, self.missing_bytes)}; its folder would be {self.folder}"
        base = base_name(self.folder) if is_adapter(self.folder) else ""
        on = f"; an adapter on {base}, which is brought when the adapter is used" if base else ""
        return f"{what}: {self.files} files, {readable_bytes(self.size)}, in {self.folder}{on}"


def fetch_from_hub(
    text: str, revision: str | None = None, out: Path | None = None, *, dry_run: bool = False
) -> HubFetch:
    """Downloads a checkpoint; a dry run downloads everything but the weights, whose index says what they are. Raises HubError, CheckpointError."""
    name = parse_hub_name(text, revision)
    if out is not None:
        require_new(out)
    found, lines = resolve(name), DownloadLines(str(name))
    fetch_companions(found, lines)
    files = [*found.companions, *found.weights]
    missing = found.missing(files)
    if not dry_run:
        fetch(found, lines)
        if out is not None:
            copy_checkpoint(found, out)
    return HubFetch(
        found,
        found.folder if out is None else out,
        len(files),
        len(missing),
        sum(file.size for file in files),
        sum(file.size for file in missing),
        dry_run,
    )


def copy_checkpoint(found: HubCheckpoint, out: Path) -> None:
    """Copies a fetched checkpoint into the new folder `out`, which appears when it is whole. Raises HubError."""
    require_new(out)
    files = [*found.companions, *found.weights]
    with hub_errors(found.name):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        require_space(out.absolute().parent, sum(file.size for file in files), "give another --out")
        draft = out.with_name(f".{out.name}.part")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            for file in files:
                (draft / file.name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found.folder / file.name, draft / file.name)
            if out.is_dir():
                out.rmdir()
            draft.rename(out)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def require_new(out: Path) -> None:
    """Raises HubError for an output folder that holds something."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise HubError(
            f"{out} is there already and is no empty folder; nothing was changed: give another --out, or remove it"
        )


def describe_download(files: int, size: int, missing: int, missing_bytes: int) -> str:
    """What a download would bring, in words."""
    if not missing:
        return f"all {files} files ({readable_bytes(size)}) are in the cache"
    return f"{missing} of {files} files would be downloaded, {readable_bytes(missing_bytes)} of {readable_bytes(size)}"
