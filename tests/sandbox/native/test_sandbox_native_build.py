"""Where the runner's program is kept: in the user's cache, else in a folder of the user alone; never in one that another user may write to."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from etude.sandbox.native import build


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose cache can't be made: a file lies where it would be. Returns where temporary files go."""
    (tmp_path / "home").write_text("")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def test_a_user_without_a_home_has_the_runner_in_a_folder_closed_to_others(no_home: Path) -> None:
    for _ in range(2):  # made, and found again
        folder = build._folder("key")
        assert folder.parent.parent == no_home and folder.is_dir()
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_may_write_to_is_refused(no_home: Path) -> None:
    build._folder("key").parent.chmod(0o777)
    with pytest.raises(build.Unbuildable, match="not a folder of this user alone; remove it"):
        build._folder("key")


def test_a_link_in_its_place_is_refused(no_home: Path, tmp_path: Path) -> None:
    place = build._folder("key").parent
    (place / "key").rmdir()
    place.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(build.Unbuildable, match="not a folder of this user alone"):
        build._folder("key")
