"""The native runner's reading and writing of frames: exact for friends, and an end for foes. Test 50 of docs/sandbox.md, from the inside."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.sandbox.inside import frames
from etude.sandbox.native import build

if TYPE_CHECKING:
    from conftest import Start, Talk

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
# All that Python can hand to a command: no zero byte, and lone surrogates only where they stand for a byte.
letters = st.characters(exclude_characters="\0", exclude_categories=("Cs",)) | st.sampled_from(
    [chr(0xDC80 + n) for n in range(128)]
)
words = st.text(letters, max_size=20)


@given(st.lists(words, min_size=1, max_size=6))
@SHARED
def test_words_arrive_as_python_would_encode_them(talk: Talk, argv: list[str]) -> None:
    said = talk.run("printf", r"%s\0", *argv).blob
    assert said == b"".join(word.encode(errors="surrogateescape") + b"\0" for word in argv)


@given(st.binary(min_size=1, max_size=40))
@SHARED
def test_names_leave_as_python_would_decode_them(talk: Talk, raw: bytes) -> None:
    name = raw.replace(b"\0", b"").replace(b"/", b"").decode(errors="surrogateescape")
    if name in ("", ".", ".."):
        return
    talk.ask(frames.WRITE, b"", path=f"names/{name}", mode=None)
    listed = talk.ask(frames.LIST, path="names", recursive=True, max_entries=9).head["entries"]
    talk.ask(frames.REMOVE, path="names")
    assert listed == [[name, "file", 0, 0o644]]


@given(st.text('\\u"\ud83d\udc00\udcff\ud800ab', max_size=12))
@SHARED
def test_surrogates_pair_up_as_in_python(talk: Talk, word: str) -> None:
    text = json.loads(json.dumps(word))
    try:
        expected = text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        assert talk.run("printf", "%s", word).head.get("error") == "UserError"
    else:
        assert talk.run("printf", "%s", word).blob == expected


def test_json_that_python_would_read_is_read_whatever_its_shape(talk: Talk) -> None:
    head = json.dumps(
        {**talk.command("echo", "first"), "more": [{"deep": [None, True, -1.5e-3, '\\"/\b\f\n\r\t']}]}, indent=3
    )
    head = head[:-1] + ', "argv" : [ "echo" , "second" ] }'  # of two keys the later counts
    payload = struct.pack("!I", len(head)) + head.encode()
    for byte in frames.HEADER.pack(len(payload), frames.RUN, 77) + payload:
        talk.socket.send(bytes([byte]))  # cut anywhere
    assert talk.hear().blob == b"second\n"


def raw(kind: int, stream: int, head: bytes, blob: bytes = b"") -> bytes:
    return frames.HEADER.pack(4 + len(head) + len(blob), kind, stream) + frames.COUNT.pack(len(head)) + head + blob


RUN = b'{"argv":["true"],"cwd":null,"env":{},"timeout_s":1,"max_output_bytes":1,"warm":false}'
FOES = {
    "unknown type": raw(99, 1, b"{}"),
    "an answer as a request": raw(frames.OK, 1, b"{}"),
    "a second spec": raw(frames.SPEC, 1, b"{}"),
    "oversized": frames.HEADER.pack((64 << 20) + 1, frames.WRITE, 1),
    "no room for a count": frames.HEADER.pack(3, frames.RUN, 1) + b"abc",
    "JSON longer than its frame": frames.HEADER.pack(4, frames.RUN, 1) + frames.COUNT.pack(1000),
    "no JSON": raw(frames.RUN, 1, b"\xff\xff{{"),
    "JSON of another kind": raw(frames.RUN, 1, b"[]"),
    "deep JSON": raw(frames.RUN, 1, b'{"argv":' + b"[" * 60_000),
    "deep JSON that closes": raw(frames.RUN, 1, b'{"argv":' + b"[" * 60_000 + b"]" * 60_000 + b"}"),
    "trailing words": raw(frames.RUN, 1, RUN + b"x"),
    "a raw byte over 127": raw(frames.RUN, 1, RUN.replace(b"true", b"tr\xc3\xa9")),
    "a bad escape": raw(frames.RUN, 1, RUN.replace(b"true", rb"\u12g4")),
    "an unended string": raw(frames.RUN, 1, b'{"argv":["'),
    "a key missing": raw(frames.RUN, 1, RUN.replace(b'"cwd":null,', b"").replace(b"argv", b"arg")),
    "a number that is a text": raw(frames.RUN, 1, RUN.replace(b':1,"warm"', b':"1","warm"')),
    "a number too large": raw(frames.READ, 1, b'{"path":"x","max_bytes":99999999999999999999,"offset":0}'),
    "no word": raw(frames.RUN, 1, RUN.replace(b'"true"', b"")),
    "stream 0": raw(frames.RUN, 0, RUN),
    "a stream in use": raw(frames.RUN, 7, RUN.replace(b"true", b"sleep\",\"5")) * 2,
    "a tree that was not asked for": raw(frames.TREE, 5, b'{"entries":[],"last":true}'),
    "a tree larger than its frame": raw(frames.PUT, 5, b'{"path":"."}')
    + raw(frames.TREE, 5, b'{"entries":[["a","file",420,0,9,null]],"last":true}', b"12345678"),
    "a tree of another kind": raw(frames.PUT, 5, b'{"path":"."}')
    + raw(frames.TREE, 5, b'{"entries":[["a","door",420,0,0,null]],"last":true}'),
    "a signal on a RUN": raw(frames.RUN, 7, RUN.replace(b"true", b"sleep\",\"5")) + raw(frames.SIGNAL, 7, b'{"number":15}'),
}  # fmt: skip


@pytest.mark.parametrize("data", FOES.values(), ids=FOES.keys())
def test_a_breach_of_the_protocol_is_reported_and_ends_it(talk: Talk, data: bytes) -> None:
    talk.socket.sendall(data)
    found = talk.hear()
    assert (found.kind, found.stream) == (frames.ERROR, 0), (found.kind, found.head)
    assert found.head["error"] == "InfraError" and found.head["message"]
    with pytest.raises((EOFError, ConnectionError)):
        talk.hear()


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(frames.KNOWN)), st.integers(0, 3), st.binary(max_size=60)),
        min_size=1,
        max_size=4,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
def test_noise_is_answered_or_ends_it_and_never_hangs(start: Start, noise: list[tuple[int, int, bytes]]) -> None:
    talk = start()
    assert talk.hear().kind == frames.READY
    try:
        for kind, stream, data in noise:
            talk.socket.sendall(frames.HEADER.pack(len(data), kind, stream) + data)
        talk.send(frames.FREEZE, 9, {"frozen": False})
        while (frame := talk.hear()).stream != 9:
            assert frame.kind == frames.ERROR
    except (EOFError, ConnectionError):
        pass
    assert talk.close() in (0, 1)


def test_the_largest_frame_is_served_and_its_memory_given_back(talk: Talk, tmp_path: Path) -> None:
    data = bytes((64 << 20) - 1000)
    assert talk.ask(frames.WRITE, data, path="large", mode=None).kind == frames.OK
    assert talk.ask(frames.READ, path="large", max_bytes=63 << 20, offset=0).blob == data[: 63 << 20]
    os.truncate(tmp_path / "large", 100 << 30)  # sparse: Test 46 of docs/sandbox.md
    assert talk.ask(frames.READ, path="large", max_bytes=1 << 40, offset=0).head["error"] == "OutputLimit"
    assert talk.ask(frames.EXPORT, path=".", max_bytes=1 << 40).head["error"] == "OutputLimit"
    held = talk.run("/bin/sh", "-c", "grep -E '^(RssAnon|RssShmem)' /proc/1/status").blob.split()
    assert int(held[1]) + int(held[4]) <= 1024, held


def test_an_idle_runner_holds_a_third_of_a_mebibyte(talk: Talk) -> None:
    held = talk.run("/bin/sh", "-c", "grep -E '^(RssAnon|RssShmem)' /proc/1/status").blob.split()
    assert int(held[1]) + int(held[4]) <= 300, held


def test_outside_of_a_pid_namespace_it_refuses_to_serve(start: Start) -> None:
    talk = start(inside=())
    found = talk.hear()
    assert (found.kind, found.head["error"]) == (frames.ERROR, "InfraError") and "process 1" in found.head["message"]
    assert talk.close() == 70


def test_a_machine_without_a_compiler_reports_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "COMPILERS", ("no-such-compiler",))
    build.program.cache_clear()
    try:
        assert "no C compiler" in str(build.program())
    finally:
        build.program.cache_clear()


def test_a_runner_that_fails_its_trial_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        build, "compile_to", lambda target, *flags: (target.write_text("#!/bin/sh\nexit 3\n"), target.chmod(0o755))
    )
    build.program.cache_clear()
    try:
        assert isinstance(reason := build.program(), str) and "test" in reason
        assert not list(tmp_path.rglob("runner"))
    finally:
        build.program.cache_clear()


def test_a_request_for_which_there_is_no_memory_is_refused_and_the_next_is_served(
    start: Start, unshared: tuple[str, ...]
) -> None:
    talk = start(inside=(*unshared, "/bin/sh", "-c", 'ulimit -v 30000; exec "$@"', "sh"))
    assert talk.hear().kind == frames.READY
    found = talk.ask(frames.WRITE, bytes(60 << 20), path="large", mode=None)
    assert (found.kind, found.head["error"]) == (frames.ERROR, "InfraError") and "memory" in found.head["message"]
    assert talk.run("echo", "fine").blob == b"fine\n"
    found = talk.run("head", "-c", "60000000", "/dev/zero", max_output_bytes=62 << 20)
    assert (found.kind, found.head["error"]) == (frames.ERROR, "InfraError")
    assert talk.run("echo", "fine").blob == b"fine\n"
