"""Checkpoints of a model hub, in the cache that other programs share: a name becomes a commit, and a commit a folder.

The library `huggingface_hub` finds the cache (`HF_HOME`, `HF_HUB_CACHE`), the hub (`HF_ENDPOINT`), the token (`HF_TOKEN`) and whether the network may
be used (`HF_HUB_OFFLINE`). Its cache holds `snapshots/COMMIT/FILE`, links to `blobs/DIGEST`. A commit whose files are all in the cache needs no
network. A branch is asked for at the hub each time, unless the caller has pinned its commit.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, get_cached_repo_tree, hf_hub_url, snapshot_download
from huggingface_hub.errors import CachedRepoTreeNotFoundError
from huggingface_hub.hf_api import BlobLfsInfo

from etude.core.files import replace_file
from etude.learn.weights.hub_download import BlobDownload, DownloadObserver, DownloadStopped
from etude.learn.weights.hub_errors import OFFLINE_REMEDY, hub_errors
from etude.learn.weights.hub_files import HubFile, companions, has_config, is_usable, require_safetensors, weights
from etude.learn.weights.hub_name import HubError, HubName

WORKERS = 4  # files at once
SPARE_BYTES = 64 << 20  # of the disk, which a download leaves free


@dataclass(frozen=True)
class HubCheckpoint:
    """A checkpoint at a commit. `files` are those of the repository that can belong to it."""

    name: HubName
    commit: str
    files: tuple[HubFile, ...]

    @property
    def folder(self) -> Path:
        """Where the cache has it, complete or not."""
        return _storage(self.name) / "snapshots" / self.commit

    @property
    def companions(self) -> list[HubFile]:
        """All but the weights."""
        return companions(self.files)

    @property
    def weights(self) -> list[HubFile]:
        """As the index says, which `fetch_companions` brings. Raises HubError and CheckpointError."""
        return weights(self.files, self.folder)

    def missing(self, files: Iterable[HubFile]) -> list[HubFile]:
        """Those that the cache does not hold."""
        return [file for file in files if not (self.folder / file.name).is_file()]


def resolve(name: HubName, commit: str = "") -> HubCheckpoint:
    """The commit that a name means now, or `commit` where the caller has pinned one, and its files. Raises HubError."""
    with hub_errors(name):
        commit = commit or name.commit
        if constants.is_offline_mode():
            commit, files = _resolve_offline(name, commit)
        else:
            commit, files = _listed_in_cache(name, commit) or _ask(name, commit)
    require_safetensors(str(name), (file.name for file in files))
    return HubCheckpoint(name, commit, files)


def fetch_companions(found: HubCheckpoint, observer: DownloadObserver) -> Path:
    """Brings config, tokenizer, templates, licence and the index of the weights into the cache; the folder. Raises HubError."""
    return _fetch(found, found.companions, observer)


def fetch(found: HubCheckpoint, observer: DownloadObserver) -> Path:
    """Brings the whole checkpoint into the cache; its folder. Raises HubError and CheckpointError."""
    fetch_companions(found, observer)
    return _fetch(found, found.weights, observer)


def _storage(name: HubName) -> Path:
    return Path(constants.HF_HUB_CACHE).expanduser() / f"models--{name.repository.replace('/', '--')}"


def _ask(name: HubName, commit: str) -> tuple[str, tuple[HubFile, ...]]:
    """What the hub says of a revision now: its commit and files. The cache remembers the commit for a time without a network."""
    about = HfApi().model_info(
        name.repository, revision=commit or name.revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
    )
    found = HubName(name.repository, about.sha or "").commit
    if not found or (commit and found != commit):
        raise HubError(
            f"the hub {constants.ENDPOINT} names {about.sha!r:.100} as the commit of {name}: check HF_ENDPOINT"
        )
    if not commit:
        reference = _storage(name) / "refs" / name.revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        replace_file(reference, found)
    siblings = [one for one in about.siblings or [] if is_usable(one.rfilename)]
    return found, tuple(_hub_file(one.rfilename, one.size, one.blob_id, one.lfs) for one in siblings)


def _cached_commit(name: HubName) -> str:
    """What the revision was when the cache saw it last; empty if it never did."""
    try:
        text = (_storage(name) / "refs" / name.revision).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return HubName(name.repository, text).commit


def _listed_in_cache(name: HubName, commit: str) -> tuple[str, tuple[HubFile, ...]] | None:
    """A commit's files, as a download before left their list in the cache; None if it is not there."""
    if not commit:
        return None
    try:
        entries = get_cached_repo_tree(name.repository, revision=commit, cache_dir=constants.HF_HUB_CACHE)
    except CachedRepoTreeNotFoundError:
        return None
    usable = [entry for entry in entries if is_usable(entry.path)]
    return commit, tuple(_hub_file(entry.path, entry.size, entry.blob_id, entry.lfs) for entry in usable)


def _hub_file(path: str, size: int | None, blob: str | None, lfs: BlobLfsInfo | None) -> HubFile:
    size, digest = (size, blob) if lfs is None else (lfs.size, lfs.sha256)
    if size is None or not digest:
        raise HubError(f"the hub {constants.ENDPOINT} names no size or no digest of {path}: check HF_ENDPOINT")
    return HubFile(path, size, digest)


def _resolve_offline(name: HubName, commit: str) -> tuple[str, tuple[HubFile, ...]]:
    """From the cache alone. Raises HubError if it does not hold the commit."""
    commit = commit or _cached_commit(name)
    folder = _storage(name) / "snapshots" / commit
    if not commit or not has_config(folder):
        raise HubError(f"HF_HUB_OFFLINE is set and the cache has no {name}: {OFFLINE_REMEDY.format(name=name)}")
    if (listed := _listed_in_cache(name, commit)) is not None:
        return listed
    there = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return commit, tuple(HubFile(path, (folder / path).stat().st_size) for path in there if is_usable(path))


def _fetch(found: HubCheckpoint, files: Sequence[HubFile], observer: DownloadObserver) -> Path:
    missing = found.missing(files)
    if not missing:
        return found.folder
    if constants.is_offline_mode():
        raise HubError(
            f"HF_HUB_OFFLINE is set and the cache lacks {missing[0].name} of {found.name} at {found.commit}: "
            + OFFLINE_REMEDY.format(name=f"{found.name.repository}@{found.commit}")
        )
    with hub_errors(found.name):
        _download(found, missing, observer)
        snapshot_download(  # links what has arrived, and records the commit's list of files
            found.name.repository,
            revision=found.commit,
            cache_dir=constants.HF_HUB_CACHE,
            endpoint=constants.ENDPOINT,
            allow_patterns=[file.name for file in files],
            tqdm_class=_quiet_progress(),
        )
    if lost := found.missing(files):
        raise HubError(
            f"{lost[0].name} of {found.name} is not in the cache {found.folder} after the download; run the same command again"
        )
    return found.folder


def _download(found: HubCheckpoint, files: Sequence[HubFile], observer: DownloadObserver) -> None:
    stop = threading.Event()
    downloads = [
        BlobDownload(
            hf_hub_url(found.name.repository, file.name, revision=found.commit, endpoint=constants.ENDPOINT),
            file,
            _storage(found.name) / "blobs",
            observer,
            stop,
        )
        for file in files
    ]
    needed = sum(download.remaining for download in downloads)
    require_space(_storage(found.name), needed, "set HF_HUB_CACHE to a larger one")
    observer.on_start(len(downloads), needed)
    with ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(download.run) for download in downloads]
        try:
            errors = [error for future in as_completed(futures) if (error := _failure(future, stop)) is not None]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if errors:
        raise next((error for error in errors if not isinstance(error, DownloadStopped)), errors[0])


def _failure(future: Future[None], stop: threading.Event) -> BaseException | None:
    """A file's error; the other files end then, and keep what has arrived."""
    error = future.exception()
    if error is not None:
        stop.set()
    return error


def require_space(place: Path, needed: int, remedy: str) -> None:
    """Raises HubError before anything is written to a disk that is too small."""
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed and free < needed + SPARE_BYTES:
        raise HubError(
            f"{needed:,} bytes are to be written below {place}, where {free:,} are free: free space, or {remedy}"
        )


def _quiet_progress() -> type:
    from huggingface_hub.utils import tqdm

    class QuietProgress(tqdm):
        """Shows nothing: the bytes have been reported as they arrived."""

        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return QuietProgress
