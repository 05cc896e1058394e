"""Files, folders, whole trees and descriptors, by the native runner."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etude.sandbox.inside import frames

if TYPE_CHECKING:
    from conftest import Start, Talk


def test_the_first_files_are_there_when_it_is_ready(start: Start, tmp_path: Path) -> None:
    talk = start(("a/b/c.txt", b"one"), ("d", b""), ("e", b"x" * 3_000_000))
    assert talk.hear().kind == frames.READY
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"one" and (tmp_path / "d").read_bytes() == b""
    assert talk.ask(frames.READ, path="e", max_bytes=4_000_000, offset=2_999_998).blob == b"xx"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o644


def test_a_first_file_that_leads_outside_is_the_end(start: Start) -> None:
    talk = start(("/proc/self/comm", b"x"))
    found = talk.hear()
    assert (found.kind, found.stream, found.head["error"]) == (frames.ERROR, 0, "UserError")
    with pytest.raises(EOFError):
        talk.hear()


def test_what_is_written_is_read_with_any_name(talk: Talk, tmp_path: Path) -> None:
    for name in ("é", "\udcff\udc80", "a b", 'q"\\', "\x01\x7f", "😀"):
        assert (
            talk.ask(frames.WRITE, name.encode(errors="surrogateescape"), path=f"x/{name}", mode=None).kind == frames.OK
        )
        assert talk.ask(frames.READ, path=f"x/{name}", max_bytes=99, offset=0).blob == os.fsencode(name)
    listed = talk.ask(frames.LIST, path="x", recursive=True, max_entries=99).head["entries"]
    assert [entry[0] for entry in listed] == sorted(os.listdir(tmp_path / "x"), key=os.fsencode)


def test_a_mode_stays_unless_one_is_given(talk: Talk, tmp_path: Path) -> None:
    for mode, expected in ((0o755, 0o755), (None, 0o755), (0o600, 0o600)):
        talk.ask(frames.WRITE, b"1", path="f", mode=mode)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == expected


@pytest.mark.parametrize(
    "path", ["/proc/self/mem", "/dev/null", "/sys", "../../../../../../dev/zero", "//proc//1//maps", "/"]
)
def test_what_is_not_a_file_of_the_sandbox_is_not_served(talk: Talk, path: str) -> None:
    """Test 46 of docs/sandbox.md."""
    found = talk.ask(frames.READ, path=path, max_bytes=10, offset=0)
    assert (found.kind, found.head["error"]) == (frames.ERROR, "UserError")


@pytest.mark.parametrize("kind", ["link", "dir", "other"])
def test_only_regular_files_are_read_and_written(talk: Talk, tmp_path: Path, kind: str) -> None:
    """Tests 44 and 47 of docs/sandbox.md."""
    {"link": lambda p: p.symlink_to("hello.txt"), "dir": Path.mkdir, "other": os.mkfifo}[kind](tmp_path / "it")
    for found in (
        talk.ask(frames.READ, path="it", max_bytes=9, offset=0),
        talk.ask(frames.WRITE, b"x", path="it", mode=None),
    ):
        assert (found.kind, found.head["error"]) == (frames.ERROR, "UserError")
        assert f"is a {kind}" in found.head["message"]


def test_no_link_is_followed_on_the_way(talk: Talk, tmp_path: Path) -> None:
    """Test 44 of docs/sandbox.md."""
    (tmp_path / "way").symlink_to("/etc")
    for kind, more in (
        (frames.READ, {"max_bytes": 9, "offset": 0}),
        (frames.WRITE, {"mode": None}),
        (frames.REMOVE, {}),
    ):
        found = talk.ask(kind, path="way/passwd", **more)
        assert (found.kind, found.head["error"]) == (frames.ERROR, "UserError")
    assert talk.ask(frames.LIST, path="way", recursive=True, max_entries=9).head["error"] == "UserError"
    assert talk.ask(frames.STAT, path="way").head["entry"][1] == "link"


def test_a_path_that_no_file_can_have_is_refused_and_the_runner_goes_on(talk: Talk) -> None:
    for path in ("a\0b", "\ud800", "x" * 300, "/".join(["y" * 200] * 30)):
        assert talk.ask(frames.READ, path=path, max_bytes=9, offset=0).head["error"] == "UserError"


def test_lists_have_a_bound_an_order_and_kinds(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"12345")
    (tmp_path / "d.x").symlink_to("d")
    os.mkfifo(tmp_path / "pipe", 0o600)
    found = talk.ask(frames.LIST, path=".", recursive=True, max_entries=5).head["entries"]
    assert [(name, kind) for name, kind, _, _ in found] == [
        ("d", "dir"), ("d/f", "file"), ("d.x", "link"), ("hello.txt", "file"), ("pipe", "other")
    ]  # fmt: skip
    assert found[1][2] == 5 and found[4][3] == 0o600
    assert len(talk.ask(frames.LIST, path=".", recursive=False, max_entries=5).head["entries"]) == 4
    assert talk.ask(frames.LIST, path=".", recursive=True, max_entries=4).head["error"] == "OutputLimit"


def test_exports_hold_every_regular_file_within_the_limit(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"\0" * 100_000)
    (tmp_path / "l").symlink_to("d/f")
    found = talk.ask(frames.EXPORT, path=".", max_bytes=100_006)
    assert (found.head["files"], len(found.blob)) == ([["d/f", 100_000], ["hello.txt", 6]], 100_006)
    assert talk.ask(frames.EXPORT, path=".", max_bytes=100_005).head["error"] == "OutputLimit"


def test_folders_nest_so_deep_and_no_deeper(talk: Talk, tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(140):
        os.mkdir("n", dir_fd=fd)
        below = os.open("n", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    for kind, more in (
        (frames.LIST, {"recursive": True, "max_entries": 999}),
        (frames.GET, {"max_bytes": 9}),
        (frames.REMOVE, {}),
    ):
        found = talk.ask(kind, path="n", **more)
        assert "deeper than 128" in found.head["message"]
    assert talk.run("rm", "-r", "n").head["rc"] == 0


def test_a_tree_is_removed_but_nothing_behind_its_links(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "d/e/l").symlink_to(tmp_path / "kept")
    assert talk.ask(frames.REMOVE, path="d").kind == frames.OK
    assert not (tmp_path / "d").exists() and (tmp_path / "kept").exists()
    assert talk.ask(frames.REMOVE, path="d").head["error"] == "UserError"


def fetch(talk: Talk, path: str, max_bytes: int) -> tuple[list[list[Any]], dict[str, bytes]]:
    stream = talk.open(frames.GET, {"path": path, "max_bytes": max_bytes})
    entries, contents, last = [], {}, False
    while not last:
        frame = talk.hear()
        assert (frame.kind, frame.stream) == (frames.TREE, stream), frame.head
        assert len(frame.blob) <= 4 << 20
        at = 0
        for entry in frame.head["entries"]:
            entries.append(entry)
            contents[entry[0]] = contents.get(entry[0], b"") + frame.blob[at : at + entry[4]]
            at += entry[4]
        assert at == len(frame.blob)
        last = frame.head["last"]
    return entries, contents


def test_a_tree_goes_out_and_in_again_the_same(talk: Talk, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    large = os.urandom(6_500_000)
    (source / "sub/large").write_bytes(large)
    (source / "sub/one MiB").write_bytes(b"m" * (1 << 20))
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o751)
    (source / "empty").touch()
    (source / "link").symlink_to("sub/large")
    os.mkfifo(source / "pipe")
    for name in ("run.sh", "sub"):
        os.utime(source / name, ns=(1, 1_600_000_000_123_456_789))
    (source / "sub").chmod(0o500)
    entries, contents = fetch(talk, "source", 10_000_000)
    assert contents["sub/large"] == large and "pipe" not in contents
    assert max(entry[4] for entry in entries) <= 1 << 20
    stream = talk.open(frames.PUT, {"path": "target/below"})
    for n, entry in enumerate(entries):
        at = sum(before[4] for before in entries[:n] if before[0] == entry[0])
        blob = contents[entry[0]][at : at + entry[4]]
        talk.send(frames.TREE, stream, {"entries": [entry], "last": n == len(entries) - 1}, blob)
    answer = talk.hear()
    assert (answer.kind, answer.head) == (frames.OK, {})
    assert fetch(talk, "target/below", 10_000_000) == (entries, contents)
    (source / "sub").chmod(0o700)
    (tmp_path / "target/below/sub").chmod(0o700)


def test_an_empty_tree_is_a_folder(talk: Talk, tmp_path: Path) -> None:
    stream = talk.open(frames.PUT, {"path": "new/er"})
    talk.send(frames.TREE, stream, {"entries": [], "last": True})
    assert talk.hear().kind == frames.OK
    assert (tmp_path / "new/er").is_dir()


def test_a_tree_over_the_limit_is_refused(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(10_000_000))
    stream = talk.open(frames.GET, {"path": ".", "max_bytes": 5_000_000})
    while (frame := talk.hear()).kind == frames.TREE:
        assert not frame.head["last"]
    assert (frame.stream, frame.head["error"]) == (stream, "OutputLimit")


def put(talk: Talk, *entries: tuple[str, str, bytes], target: str = "x") -> frames.Frame:
    stream = talk.open(frames.PUT, {"path": "."})
    rows = [[path, kind, 0o644, 0, len(data), target if kind == "link" else ""] for path, kind, data in entries]
    talk.send(frames.TREE, stream, {"entries": rows, "last": False}, b"".join(data for _, _, data in entries))
    talk.send(frames.TREE, stream, {"entries": [], "last": True})
    answer = talk.hear()
    assert answer.stream == stream
    return answer


def test_a_tree_replaces_files_and_links_and_spares_folders(talk: Talk, tmp_path: Path) -> None:
    """Test 45 of docs/sandbox.md, the runner's part."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("outside")
    assert put(talk, ("l", "file", b"new")).kind == frames.OK
    assert (tmp_path / "l").read_bytes() == b"new" and not (tmp_path / "l").is_symlink()
    for kind in ("file", "link"):
        assert put(talk, ("d", kind, b"")).head["error"] == "UserError"
    assert put(talk, ("hello.txt", "dir", b""), ("hello.txt/in", "file", b"1")).kind == frames.OK
    (tmp_path / "m").symlink_to(tmp_path / "outside")
    assert put(talk, ("m/file", "file", b"1")).head["error"] == "UserError"
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "a//b", ".", "a/.", "..", "a\0b"])
def test_entries_that_lead_elsewhere_are_refused(talk: Talk, tmp_path: Path, path: str) -> None:
    """Test 45 of docs/sandbox.md, the runner's part."""
    assert put(talk, ("fine", "file", b"1"), (path, "file", b"2"), ("after", "file", b"3")).head["error"] == "UserError"
    assert not (tmp_path / "after").exists() and not any(name.startswith(".etude") for name in os.listdir(tmp_path))
    assert talk.run("echo", "alive").blob == b"alive\n"


def test_a_full_disk_is_reported_as_such(start: Start, tmp_path: Path) -> None:
    talk = start()
    talk.hear()
    assert talk.run("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)).head["rc"] == 0
    found = talk.ask(frames.WRITE, bytes(200_000), path=f"{tmp_path}/full", mode=None)
    assert (found.head["error"], "disk_mb" in found.head["message"]) == ("DiskFull", True)
    assert talk.ask(frames.LIST, path=str(tmp_path), recursive=True, max_entries=9).head["entries"] == []


def test_a_connection_to_what_listens_inside_is_handed_out(talk: Talk) -> None:
    assert talk.ask(frames.CONNECT, port=1).head["error"] == "UserError"
    assert talk.ask(frames.CONNECT, port=0).head["error"] == "UserError"
    server = (
        "import fcntl, socket, struct\n"
        "s = socket.socket(); fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 1))\n"
        "s.bind(('127.0.0.1', 4567)); s.listen(); print('up', flush=True); c, _ = s.accept(); c.sendall(c.recv(99).upper())"
    )
    stream = talk.exec("/usr/bin/python3", "-c", server)
    assert talk.hear().blob == b"up\n"
    assert talk.ask(frames.CONNECT, port=4567).kind == frames.OK
    with socket.socket(fileno=talk.rights.pop()) as made:
        made.settimeout(10)
        made.sendall(b"shout")
        assert made.recv(99) == b"SHOUT"
    end = talk.hear()
    assert (end.kind, end.stream, end.head["rc"]) == (frames.EXIT, stream, 0)


def test_a_listener_that_takes_no_one_holds_no_one_else_up(talk: Talk) -> None:
    server = (
        "import fcntl, socket, struct, time\n"
        "s = socket.socket(); fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 1))\n"
        "s.bind(('127.0.0.1', 4568)); s.listen(0); print('up', flush=True); time.sleep(30)"
    )
    talk.exec("/usr/bin/python3", "-c", server)
    assert talk.hear().blob == b"up\n"
    streams = [talk.open(frames.CONNECT, {"port": 4568}) for _ in range(4)]
    started_s = time.monotonic()
    echo = talk.open(frames.RUN, talk.command("echo", "free"))
    answers = [talk.hear()]
    while answers[-1].stream != echo:
        answers.append(talk.hear())
    assert answers[-1].blob == b"free\n" and time.monotonic() - started_s < 3
    while len(answers) <= len(streams):
        answers.append(talk.hear())
    assert {frame.kind for frame in answers[1:]} <= {frames.OK, frames.ERROR}
    assert any("timed out" in frame.head.get("message", "") for frame in answers)


def test_frozen_means_that_nothing_moves(talk: Talk, tmp_path: Path) -> None:
    writer = "while :; do echo >> count; done"
    stream = talk.exec("/bin/sh", "-c", f"setsid sh -c '{writer}' & {writer}")
    time.sleep(0.1)
    assert talk.ask(frames.FREEZE, frozen=True).kind == frames.OK
    before = (tmp_path / "count").read_bytes()
    time.sleep(0.2)
    assert (tmp_path / "count").read_bytes() == before
    assert talk.ask(frames.READ, path="count", max_bytes=1 << 20, offset=0).blob == before
    assert talk.ask(frames.FREEZE, frozen=False).kind == frames.OK
    time.sleep(0.2)
    assert (tmp_path / "count").read_bytes() != before
    talk.send(frames.CANCEL, stream, {})
    while talk.hear().kind != frames.EXIT:
        pass


def test_what_slept_before_a_freeze_sleeps_after_it(talk: Talk, tmp_path: Path) -> None:
    sleeper = talk.exec("/bin/sh", "-c", "echo $$; kill -STOP $$; touch woken; exec sleep 1000")
    pid = talk.hear().blob.decode().strip()
    spin = "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()"
    threads = f"import threading, time; {spin}; {spin}; time.sleep(60)"
    busy = talk.exec("/usr/bin/python3", "-c", threads)
    time.sleep(0.3)
    for frozen in (True, True, False, False):  # idempotent
        assert talk.ask(frames.FREEZE, frozen=frozen).kind == frames.OK
    time.sleep(0.1)
    assert not (tmp_path / "woken").exists()
    talk.run("kill", "-CONT", pid)
    time.sleep(0.2)
    assert (tmp_path / "woken").exists()
    for stream in (sleeper, busy):
        talk.send(frames.CANCEL, stream, {})
    assert {talk.hear().stream for _ in range(2)} == {sleeper, busy}
