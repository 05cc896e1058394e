"""A frozen layer of a fake sandbox' files, known by a digest of its contents; travels as a tar with `.wh.` names for what it removes."""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from etude.sandbox.errors import LayerCorrupt
from etude.sandbox.layers.strict_tar import open_tar

_WHITEOUT = ".wh."  # as OCI images write it


class FakeFile(NamedTuple):
    data: bytes
    mode: int = 0o644


class FakeLayer(dict[str, FakeFile | None]):
    """Path relative to / → file, or None where the layer removes one from those below. Never written after it was made."""

    def __init__(self, files: Mapping[str, FakeFile | None]) -> None:
        super().__init__(files)

    @cached_property
    def digest(self) -> str:
        total = hashlib.sha256()
        for name in sorted(self):
            file = self[name]
            content = "-" if file is None else f"{file.mode:o} {hashlib.sha256(file.data).hexdigest()}"
            total.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()

    def export(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name in sorted(self):
                file = self[name]
                folder, leaf = posixpath.split(name)
                info = tarfile.TarInfo(name if file else posixpath.join(folder, _WHITEOUT + leaf))
                info.size, info.mode = (len(file.data), file.mode) if file else (0, 0)
                archive.addfile(info, io.BytesIO(file.data if file else b""))
        return out.getvalue()

    @staticmethod
    def load(digest: str, archive: bytes) -> FakeLayer:
        """Raises LayerCorrupt for anything that is not the layer of that digest."""
        files: dict[str, FakeFile | None] = {}
        try:
            with open_tar(io.BytesIO(archive)) as opened:
                for info in opened:
                    folder, leaf = posixpath.split(info.name)
                    if leaf.startswith(_WHITEOUT):
                        files[posixpath.join(folder, leaf.removeprefix(_WHITEOUT))] = None
                    elif (content := opened.extractfile(info)) is not None:
                        files[info.name] = FakeFile(content.read(), info.mode)
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            raise LayerCorrupt(f"layer {digest[:12]}: not an archive: {error}") from None
        layer = FakeLayer(files)
        if layer.digest != digest:
            raise LayerCorrupt(f"layer {digest[:12]}: the contents have the digest {layer.digest[:12]}")
        return layer


def chain_digest(digests: tuple[str, ...]) -> str:
    """What a snapshot of these layers, topmost first, is called."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
