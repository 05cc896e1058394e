"""The manifest survives kills and full disks, and no byte of it changes unnoticed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.manifest import LibraryManifest, ManifestBroken, ProjectEntry, entries, refused_files

REFUSED = [("setup/gen.c", "generated"), ("a\udcff\n b.py", "not UTF-8")]


def entry(number: int) -> ProjectEntry:
    return ProjectEntry(
        id=f"pypi/p{number}@1.{number}",
        origin="sha256:ab",
        licences={"MIT": number},
        kept={"python": (number, 1000 * number)},
        refused={"generated": 1, "not UTF-8": 1},
        redactions={"email": 3},
    )


def filled(path: Path, count: int = 3) -> Path:
    with LibraryManifest(path) as manifest:
        for number in range(count):
            manifest.append(entry(number), REFUSED if number % 2 == 0 else [])
    return path


def ids(path: Path) -> list[str]:
    return [e["id"] for e in entries(path)]


def test_what_was_appended_is_read_back_and_is_done(tmp_path: Path) -> None:
    path = filled(tmp_path / "new" / "manifest.jsonl")
    with LibraryManifest(path) as manifest:
        manifest.append(ProjectEntry("npm/x@2", reason="archive damaged"))
        manifest.verify()
        assert manifest.done() == {"pypi/p0@1.0", "pypi/p1@1.1", "pypi/p2@1.2", "npm/x@2"}
    first, second, _, whole = entries(path)
    assert (
        first["kept"] == {"python": [0, 0]} and first["licences"] == {"MIT": 0} and first["redactions"] == {"email": 3}
    )
    assert refused_files(path, first) == REFUSED and refused_files(path, second) == []
    assert whole["reason"] == "archive damaged"


@pytest.mark.parametrize("text", ["a note", '{"previous": "none of ours', "\n", '{"id"'])
def test_a_file_of_somebody_else_is_refused_and_left_as_it_was(tmp_path: Path, text: str) -> None:
    path = tmp_path / "manifest.jsonl"
    for before in (filled(tmp_path / "own" / "manifest.jsonl").read_bytes(), b""):
        path.write_bytes(before + text.encode())
        (tmp_path / "manifest.refused.jsonl.zst").write_bytes(
            (tmp_path / "own/manifest.refused.jsonl.zst").read_bytes()
        )
        with pytest.raises(ManifestBroken):
            LibraryManifest(path)
        assert path.read_bytes() == before + text.encode()


def test_a_manifest_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "home.txt").write_text("mine")
    (tmp_path / "manifest.jsonl").symlink_to(tmp_path / "home.txt")
    with pytest.raises(OSError, match="manifest.jsonl"):
        LibraryManifest(tmp_path / "manifest.jsonl")
    assert (tmp_path / "home.txt").read_text() == "mine"


def test_the_side_file_is_one_stream_of_json_lines(tmp_path: Path) -> None:
    filled(tmp_path / "manifest.jsonl")
    with (tmp_path / "manifest.refused.jsonl.zst").open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().decode()
    assert [json.loads(line)["id"] for line in text.splitlines()] == ["pypi/p0@1.0"] * 2 + ["pypi/p2@1.2"] * 2


def test_a_project_is_not_taken_twice(tmp_path: Path) -> None:
    with LibraryManifest(filled(tmp_path / "m.jsonl")) as manifest, pytest.raises(ValueError, match="p1@1.1.*already"):
        manifest.append(entry(1))


def test_a_second_writer_is_asked_to_wait_and_a_reader_is_not(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.jsonl")
    with LibraryManifest(path):
        with pytest.raises(OSError, match="another process"):
            LibraryManifest(path)
        assert len(ids(path)) == 3
    LibraryManifest(path).close()


def test_after_a_kill_at_any_byte_of_an_append_it_opens_with_the_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds of states; what is on disk is written here by hand
    path = filled(tmp_path / "m.jsonl", 2)
    side = tmp_path / "m.refused.jsonl.zst"
    lines, frames = path.read_bytes(), side.read_bytes()
    filled_more = filled(tmp_path / "more.jsonl", 3)
    new_lines, new_frames = filled_more.read_bytes(), (tmp_path / "more.refused.jsonl.zst").read_bytes()
    assert new_lines.startswith(lines) and new_frames.startswith(frames)
    # First the frame grows, then the line.
    states = [(len(lines), cut) for cut in range(len(frames), len(new_frames) + 1)]
    states += [(cut, len(new_frames)) for cut in range(len(lines) + 1, len(new_lines) + 1)]
    for line_bytes, side_bytes in states:
        path.write_bytes(new_lines[:line_bytes])
        side.write_bytes(new_frames[:side_bytes])
        finished = line_bytes == len(new_lines)
        with LibraryManifest(path) as manifest:
            manifest.verify()
            assert len(manifest.done()) == (3 if finished else 2)
            if not finished:
                manifest.append(entry(2), REFUSED)
        assert (path.read_bytes(), side.read_bytes()) == (new_lines, new_frames)


WRITER = """
import sys
from pathlib import Path
from etude.learn.corpus.manifest import LibraryManifest, ProjectEntry
with LibraryManifest(Path(sys.argv[1])) as manifest:
    start = len(manifest.done())
    for number in range(start, start + 100000):
        manifest.append(ProjectEntry(f"p{number}", licences={"x" * 500: 1}), [("y" * 3000, "generated")] * 20)
        print(number, flush=True)
"""


def test_a_killed_writers_promises_are_kept(tmp_path: Path) -> None:
    path, promised = tmp_path / "m.jsonl", -1
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout
        promised = int(writer.stdout.readline())
        time.sleep(0.05)
        writer.send_signal(signal.SIGKILL)
        promised = max([promised, *map(int, writer.stdout.read().split("\n")[:-1])])
        writer.wait()
        with LibraryManifest(path) as manifest:
            manifest.verify()
            # What was said to be done is; at most the one under way more, and none is missing in between.
            assert len(manifest.done()) in (promised + 1, promised + 2)
            assert manifest.done() == {f"p{number}" for number in range(len(manifest.done()))}


@pytest.mark.parametrize("room", [0, 1, 40, 150, 400, 500])
def test_a_full_disk_is_named_and_leaves_the_manifest_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path = filled(tmp_path / "m.jsonl", 2)
    before = path.read_bytes()
    real, left = os.pwrite, [room]

    def pwrite(file: int, data: bytes, at: int) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(file, data[: left[0]], at)
        left[0] -= count
        return count

    with LibraryManifest(path) as manifest:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            with pytest.raises(OSError, match="No space.*make room") as caught:
                manifest.append(entry(2), REFUSED)
            assert caught.value.errno == errno.ENOSPC
        assert path.read_bytes() == before
        manifest.append(entry(3))  # with room again the same writer goes on
        manifest.verify()
    with LibraryManifest(path) as manifest:
        assert manifest.done() == {"pypi/p0@1.0", "pypi/p1@1.1", "pypi/p3@1.3"}


@settings(max_examples=80)
@given(side=st.booleans(), place=st.floats(0, 0.999999), change=st.integers(1, 255), newline=st.booleans())
def test_a_changed_byte_anywhere_is_found(
    tmp_path_factory: pytest.TempPathFactory, side: bool, place: float, change: int, newline: bool
) -> None:
    folder = tmp_path_factory.mktemp("manifest")
    with LibraryManifest(filled(folder / "m.jsonl")) as manifest:
        target = folder / ("m.refused.jsonl.zst" if side else "m.jsonl")
        data = bytearray(target.read_bytes())
        at = int(place * len(data))
        data[at] = 10 if newline and data[at] != 10 else data[at] ^ change
        target.write_bytes(data)
        with pytest.raises(ManifestBroken, match=r"m\.jsonl: line [123]"):
            manifest.verify()
    if not side:  # and on opening: a changed line is not taken for one that a kill tore
        with pytest.raises(ManifestBroken):
            LibraryManifest(folder / "m.jsonl")


@pytest.mark.parametrize(
    "change", [lambda a, b, c: [a, c], lambda a, b, c: [b, a, c], lambda a, b, c: [a, a, b, c], lambda a, b, c: [b, c]]
)
def test_a_line_removed_moved_or_doubled_is_found(tmp_path: Path, change) -> None:
    path = filled(tmp_path / "m.jsonl")
    path.write_bytes(b"".join(change(*path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ManifestBroken, match="line [123] does not follow"):
        LibraryManifest(path)


def test_last_lines_removed_are_found_by_the_head(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.jsonl")
    with LibraryManifest(path) as manifest:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
        with pytest.raises(ManifestBroken, match="another line"):
            manifest.verify()


def test_a_missing_side_file_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.jsonl")
    (tmp_path / "m.refused.jsonl.zst").unlink()
    with pytest.raises(ManifestBroken, match="line 1: its refused files are missing from m.refused"):
        LibraryManifest(path)
