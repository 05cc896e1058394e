"""Tar archives of other people, read with the standard library, whose guesses about broken ones are overruled.

`tarfile` takes a header that is cut or damaged for the end of the archive and says nothing, unless it is the first one. Here an archive is whole or
`tarfile.ReadError` is raised: it ends with the mark of its end, a block of zeros.
"""

from __future__ import annotations

import tarfile
from typing import IO, Any, cast

# tarfile's own, which its stubs don't have. An end of the archive as it should be is another exception of the same family.
_EMPTY, _CUT, _BAD = (
    cast(type[Exception], getattr(tarfile, name))
    for name in ("EmptyHeaderError", "TruncatedHeaderError", "InvalidHeaderError")
)


class StrictHeader(tarfile.TarInfo):
    """A header that is whole."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        return _header(super().fromtarfile, tarfile, marked=True)


class ProvenHeader(tarfile.TarInfo):
    """The same of an archive whose digest is known: it may lack the mark of its end."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        return _header(super().fromtarfile, tarfile, marked=False)


def open_tar(file: IO[bytes], *, proven: bool = False, **options: Any) -> tarfile.TarFile:
    """An archive that isn't compressed, to read. Raises tarfile.TarError, here and while it is read."""
    header = ProvenHeader if proven else StrictHeader
    return tarfile.open(fileobj=file, mode="r:", tarinfo=header, **options)


def _header(read: Any, archive: Any, *, marked: bool) -> Any:
    try:
        return read(archive)
    except _CUT as error:
        raise tarfile.ReadError(f"it is cut in a header, {_place(archive)}; get it again from where it came") from error
    except _BAD as error:
        raise tarfile.ReadError(f"{error}, {_place(archive)}") from error
    except _EMPTY as error:
        if not marked and archive.offset:
            raise
        raise tarfile.ReadError(
            f"it ends {_place(archive)}, without the block of zeros that ends an archive: it is empty or cut; get it again"
        ) from error


def _place(archive: Any) -> str:
    return f"at byte {archive.offset:,}"
