"""One file of the hub into the hub's cache: resumed where an earlier download ended, checked by its digest, renamed when it is whole.

The file grows as `blobs/DIGEST.etude.incomplete` and becomes `blobs/DIGEST`. So the cache never holds half a file under its name, and a download that
was stopped goes on at its last byte. Two processes that want the same file wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

import httpx2
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from etude.learn.weights.hub_files import HubFile
from etude.learn.weights.hub_name import HubError

ATTEMPTS = 5  # connections that bring no byte before a download is given up
PAUSE_S = 1.0
CHUNK_BYTES = 1 << 20
SUFFIX = ".etude.incomplete"


class DownloadObserver(Protocol):
    """Follows a download."""

    def on_start(self, files: int, size: int) -> None:
        """This number of files and of bytes is missing in the cache."""

    def on_bytes(self, count: int) -> None:
        """These bytes have arrived; negative where bytes that were here are of no use. Called from several threads."""


class DownloadStopped(Exception):
    """Another file of the same download failed, so this one ends too."""


@dataclass(frozen=True)
class BlobDownload:
    """A file and the place of its content in the cache."""

    url: str
    file: HubFile
    blobs: Path
    observer: DownloadObserver
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def target(self) -> Path:
        return self.blobs / self.file.digest

    @property
    def part(self) -> Path:
        return self.blobs / f"{self.file.digest}{SUFFIX}"

    @property
    def remaining(self) -> int:
        """Bytes that are still to be downloaded."""
        if self.target.exists():
            return 0
        return self.file.size - (min(self.part.stat().st_size, self.file.size) if self.part.exists() else 0)

    def run(self) -> None:
        """Raises HubError, and what the library raises for an answer that is an error."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "r+b") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            if self.target.exists():  # another process was faster
                self.part.unlink(missing_ok=True)
                return
            self._fill(part)
            part.flush()
            os.fsync(part.fileno())
            self._check(part)
            self.part.replace(self.target)

    def _fill(self, part: BinaryIO) -> None:
        """Downloads until the file has its size."""
        barren = 0
        while (have := part.seek(0, os.SEEK_END)) < self.file.size:
            try:
                self._stream(part, have)
            except (httpx2.TransportError, httpx2.StreamError) as error:
                barren = barren + 1 if part.seek(0, os.SEEK_END) <= have else 0
                if barren >= ATTEMPTS or isinstance(error, httpx2.ProxyError):
                    raise
                time.sleep(PAUSE_S)
            else:
                if part.seek(0, os.SEEK_END) <= have:
                    raise HubError(
                        f"the hub sent no more than {have:,} of {self.file.size:,} bytes of {self.file.name}; try again later"
                    )

    def _stream(self, part: BinaryIO, have: int) -> None:
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", self.url, headers=headers, timeout=timeout) as answer:
            hf_raise_for_status(answer)
            if have and answer.status_code != 206:  # the server sends the whole file
                part.truncate(0)
                part.seek(0)
                self.observer.on_bytes(-have)
            for chunk in answer.iter_bytes():
                if self.stop.is_set():
                    raise DownloadStopped(self.file.name)
                part.write(chunk)
                part.flush()
                self.observer.on_bytes(len(chunk))
                if part.tell() > self.file.size:
                    return

    def _check(self, part: BinaryIO) -> None:
        """Raises HubError and removes the file if its content is not the one that the repository lists."""
        size = part.seek(0, os.SEEK_END)
        part.seek(0)
        if len(self.file.digest) == 64:
            digest = hashlib.sha256()
        else:
            digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        while chunk := part.read(CHUNK_BYTES):
            digest.update(chunk)
        if size != self.file.size or digest.hexdigest() != self.file.digest:
            self.part.unlink(missing_ok=True)
            raise HubError(
                f"{self.file.name} arrived with {size:,} bytes and the digest {digest.hexdigest()}, and the repository lists {self.file.size:,} "
                f"bytes and {self.file.digest}; it was removed: run the same command again, and if it stays so, check HF_ENDPOINT and proxies"
            )
