"""Promise: a reader of a file sees the old content or the new one, and an append is whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.files import append_lines, replace_file, replacing, sync_folder

FullDisk = Callable[[int], AbstractContextManager[None]]

SOURCE = Path(__file__).parents[2] / "src" / "etude"


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_a_replaced_file_has_the_new_content_and_nothing_is_left_next_to_it(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes, durable: bool
) -> None:
    path = tmp_path_factory.mktemp("files") / "state.json"
    replace_file(path, old)
    replace_file(path, new, durable=durable)
    assert path.read_bytes() == new and os.listdir(path.parent) == ["state.json"]


def test_text_is_utf_8_and_the_mode_is_cut_by_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "open", "é")
        replace_file(tmp_path / "own", "é", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "open").read_bytes() == b"\xc3\xa9"
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("open", "own")] == [0o640, 0o600]


def test_an_error_in_the_block_leaves_the_old_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    with pytest.raises(ValueError, match="half"), replacing(path) as file:
        file.write(b"new, but only ")
        raise ValueError("half")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["kept"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_full_disk_leaves_the_old_content_alone(tmp_path: Path, full_disk: FullDisk, durable: bool) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    with full_disk(1000), pytest.raises(OSError):
        replace_file(path, b"x" * 5000, durable=durable)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["kept"]


def test_a_kill_in_a_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    program = (
        "import os, sys, pathlib; from etude.core.files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'new'); file.flush(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60)
    assert done.returncode == -signal.SIGKILL and path.read_text() == "old"
    assert not [name for name in os.listdir(tmp_path) if name != "kept" and not name.endswith(".part")]
    replace_file(path, "newer")
    assert path.read_text() == "newer"


def test_threads_that_write_one_file_never_mix_their_contents(tmp_path: Path) -> None:
    path, texts = tmp_path / "shared", [letter * 50_000 for letter in "abcdefgh"]
    replace_file(path, texts[0])
    seen: set[str] = set()
    writers = [
        threading.Thread(target=lambda text=text: [replace_file(path, text) for _ in range(20)]) for text in texts
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_text())
    assert seen <= set(texts) and os.listdir(tmp_path) == ["shared"]


def test_a_name_at_the_limit_of_the_file_system_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    replace_file(path, "whole")
    assert path.read_text() == "whole"


def test_a_link_in_the_place_of_the_hidden_file_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    part = tmp_path / f".report.{os.getpid()}-{threading.get_ident()}.part"
    part.symlink_to(victim)
    with pytest.raises(OSError):
        replace_file(tmp_path / "report", "new")
    assert victim.read_text() == "untouched"


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=8), st.binary(max_size=20))
def test_appends_keep_whole_lines_behind_a_torn_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], torn: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines") / "ledger.jsonl"
    path.write_bytes(torn)
    for line in lines:
        append_lines(path, line + b"\n", durable=False)
    expected = torn + b"\n" if torn and not torn.endswith(b"\n") and lines else torn
    assert path.read_bytes() == expected + b"".join(line + b"\n" for line in lines)


def test_an_append_that_finds_no_room_is_taken_back_and_says_what_to_do(tmp_path: Path, full_disk: FullDisk) -> None:
    path = tmp_path / "ledger.jsonl"
    append_lines(path, b"first\n", durable=True)
    refused = pytest.raises(OSError, match="ledger.jsonl: the disk is full: free space and run the same command again")
    with full_disk(100), refused:
        append_lines(path, b"x" * 500 + b"\n", durable=True)
    append_lines(path, b"second\n", durable=True)
    assert path.read_bytes() == b"first\nsecond\n"


def test_an_append_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        append_lines(tmp_path / "ledger.jsonl", b"line\n", durable=False)
    assert not (tmp_path / "elsewhere").exists()


def test_durable_writes_reach_the_disk_before_the_rename_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_fsync(handle: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def record_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    replace_file(tmp_path / "a", b"1", durable=True)
    assert calls == ["file", "rename", "folder"]
    replace_file(tmp_path / "a", b"2")
    sync_folder(tmp_path)
    assert calls[3:] == ["rename", "folder"]


# Files that call fsync themselves, because they keep a descriptor open or write in place.
OWN_FSYNC = {
    "core/files.py",
    "learn/corpus/manifest.py",
    "learn/parallel/rank_states.py",
    "learn/parallel/shared_training.py",
    "learn/weights/folder.py",
    "learn/weights/hub_download.py",
    "rl/ledger.py",
}


def test_fsync_has_one_place_but_for_files_that_stay_open() -> None:
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if "os.fsync" in path.read_text()}
    assert found == OWN_FSYNC
