"""A pinned release is unpacked by the one extractor, whole, and readable for the users of sandboxes."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from etude.tasks.running import pin
from etude.tasks.running.pin import PackagesUnavailable, Pin, unpack_release


def wheel(path: Path, name: str = "pack/a.py") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "A = 1\n")
    return path


def release(path: Path, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("pack-1.0/tests/a.py")
        info.size = 6
        archive.addfile(info, io.BytesIO(b"A = 1\n"))
        for entry in more:
            archive.addfile(entry)
    return path


def give(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    monkeypatch.setattr(pin, "_download", lambda pin, folder: archive)


def test_wheels_and_source_releases_are_unpacked_once_and_readable_for_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    give(monkeypatch, wheel(tmp_path / "pack-1.0-py3-none-any.whl"))
    folder = unpack_release(Pin("pack", "1.0", "0" * 64), tmp_path / "cache")
    give(monkeypatch, release(tmp_path / "pack-1.0.tar.gz"))
    source = unpack_release(Pin("pack", "1.0", "1" * 64, "sdist"), tmp_path / "cache")
    for file in (folder / "pack/a.py", source / "tests/a.py"):
        assert file.read_text() == "A = 1\n" and file.stat().st_mode & 0o777 == 0o644
        assert file.parent.stat().st_mode & 0o777 == file.parent.parent.stat().st_mode & 0o777 == 0o755


def test_a_release_that_leads_out_or_is_not_unpacked_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    give(monkeypatch, wheel(tmp_path / "pack-1.0-py3-none-any.whl", "../outside.py"))
    with pytest.raises(PackagesUnavailable, match="pack-1.0-py3-none-any.whl can't be unpacked: .* leads out"):
        unpack_release(Pin("pack", "1.0", "2" * 64), tmp_path / "cache")
    link = tarfile.TarInfo("pack-1.0/link")
    link.type, link.linkname = tarfile.SYMTYPE, "tests"
    give(monkeypatch, release(tmp_path / "pack-1.0.tar.gz", link))
    with pytest.raises(PackagesUnavailable, match="holds entries that are not unpacked: {'link': 1}"):
        unpack_release(Pin("pack", "1.0", "3" * 64, "sdist"), tmp_path / "cache")
    assert not (tmp_path / "outside.py").exists() and not (tmp_path / "cache/outside.py").exists()
