"""Small archives for tests, honest and hostile."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Mapping

COMPRESSORS = {"": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def tar(files: Mapping[str, bytes], compression: str = "gz", more: list[tarfile.TarInfo] | None = None) -> bytes:
    """A tar of regular files, with further members without data behind them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in more or ():
            archive.addfile(info)
    return COMPRESSORS[compression](out.getvalue())


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A link, device or pipe."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()
