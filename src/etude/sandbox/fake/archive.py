"""Files of a fake sandbox in and out as a tar; names that lead outside and anything but files and folders are refused before a write."""

from __future__ import annotations

import io
import posixpath
import tarfile

from etude.core.archives import ArchiveError, ArchiveLimits, EntryCounter, open_tar, tar_content, tar_entries
from etude.sandbox.errors import OutputLimit, UserError
from etude.sandbox.fake.files import FakeFiles

_LIMITS = ArchiveLimits(entries=100_000, total_bytes=1 << 30)


def unpack(files: FakeFiles, path: str, archive: bytes) -> None:
    found: list[tuple[str, bytes, int]] = []
    try:
        with open_tar(io.BytesIO(archive)) as opened:
            for name, kind, info in tar_entries(opened, EntryCounter(_LIMITS), ("file", "folder")):
                if kind == "file":
                    found.append((posixpath.join(path, name), tar_content(opened, info), info.mode & 0o777))
    except ArchiveError as error:
        raise UserError(f"put_tar: {error}") from None
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise UserError(f"put_tar: not an archive: {error}") from None
    for name, data, mode in found:
        files.write(name, data, mode)


def pack(files: FakeFiles, path: str, max_bytes: int) -> bytes:
    base = files.resolve(path)
    out = io.BytesIO()
    total = 0
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in files.under(base):
            file = files.find(name)
            assert file is not None
            total += len(file.data)
            if total > max_bytes:
                raise OutputLimit(f"get_tar: {path} has more than {max_bytes} bytes")
            info = tarfile.TarInfo(posixpath.relpath(name, base or "."))
            info.size, info.mode = len(file.data), file.mode
            archive.addfile(info, io.BytesIO(file.data))
    return out.getvalue()
