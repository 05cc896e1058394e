"""What is asked of a runner and what it answers, as values. What the caller asks is refused here if it makes no sense; what the runner
answers is checked (FrameError), because whatever is inside may have become the runner.
"""

from __future__ import annotations

import os
from typing import Any

from etude.sandbox.errors import UserError
from etude.sandbox.inside import frames
from etude.sandbox.spec import ExecResult, FileEntry

MOST_BYTES = (
    1 << 40
)  # of anything that is asked for: beyond what a machine holds, and no runner takes more than a machine's word
_MOST_TIMEOUT_S = 1e9


def whole(name: str, value: object, least: int, most: int) -> int:
    """A number as the runners take it: one that they can't hold would end them. Raises UserError."""
    if not isinstance(value, int) or not least <= value <= most:
        raise UserError(f"{name}={value!r}: expected a whole number from {least} to {most}")
    return value


def variables(env: dict[str, str]) -> dict[str, str]:
    """Those of a command or of a spec. Raises UserError."""
    if any(not name or "=" in name for name in env):
        raise UserError(f"a variable's name can't be empty or hold '=': {sorted(env)!r}")
    for name, value in env.items():
        text(f"variable {name!r}", name + value)
    return env


def text(name: str, value: str) -> str:
    """What the kernel takes as a name or word. Raises UserError."""
    if "\0" in value:
        raise UserError(f"{name} can't hold a zero byte: {value!r:.200}")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise UserError(f"{name} can't hold half a surrogate pair: {value!r:.200}") from None
    return value


def command(
    argv: list[str] | str, cwd: str | None, env: dict[str, str] | None, timeout_s: float | None, max_output_bytes: int
) -> dict[str, Any]:
    """The head of RUN and EXEC. Raises UserError."""
    words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
    if not words or (timeout_s is not None and not 0 < timeout_s <= _MOST_TIMEOUT_S):
        raise UserError(
            f"a command has words, and a time above 0 and up to {_MOST_TIMEOUT_S:g} s: {argv!r}, {timeout_s} s"
        )
    whole("max_output_bytes", max_output_bytes, 0, MOST_BYTES)
    for word in (*words, cwd or ""):
        text("a command", word)
    return {
        "argv": words,
        "cwd": cwd,
        "env": variables(env or {}),
        "timeout_s": timeout_s,
        "max_output_bytes": max_output_bytes,
        "warm": False,
        "user": None,
    }


def result(head: dict[str, Any], out: bytes, err: bytes, *, truncated: bool = False) -> ExecResult:
    """What RUN's answer and EXIT have in common."""
    try:
        return ExecResult(
            rc=int(head["rc"]),
            out=out,
            err=err,
            truncated=truncated or bool(head["truncated"]),
            timed_out=bool(head["timed_out"]),
            oom=bool(head["oom"]),
            signal=None if head["signal"] is None else int(head["signal"]),
            duration_s=float(head["duration_s"]),
            cpu_s=float(head["cpu_s"]),
            max_rss_kib=int(head["max_rss_kib"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _broken(f"the end of a command, {error!r}") from None


def ran(frame: frames.Frame) -> ExecResult:
    """RUN's answer."""
    cut = frame.head.get("out")
    if not isinstance(cut, int) or not 0 <= cut <= len(frame.blob):
        raise _broken(f"out={cut!r} of {len(frame.blob)} bytes")
    return result(frame.head, frame.blob[:cut], frame.blob[cut:])


def entry(found: Any) -> FileEntry:
    try:
        path, kind, size_bytes, mode = found
    except (TypeError, ValueError):
        raise _broken(f"entry {found!r}") from None
    if not isinstance(path, str) or kind not in ("file", "dir", "link", "other"):
        raise _broken(f"entry {found!r}")
    if not isinstance(size_bytes, int) or not isinstance(mode, int):
        raise _broken(f"entry {found!r}")
    return FileEntry(path, kind, size_bytes, mode)


def entries(frame: frames.Frame) -> list[FileEntry]:
    """LIST's answer."""
    found = frame.head.get("entries")
    if not isinstance(found, list):
        raise _broken("a list without entries")
    return [entry(one) for one in found]


def contents(frame: frames.Frame) -> dict[str, bytes]:
    """EXPORT's answer."""
    files: dict[str, bytes] = {}
    offset = 0
    try:
        for name, length in frame.head["files"]:
            if not isinstance(name, str) or not 0 <= length <= len(frame.blob) - offset:
                raise _broken(f"file {name!r} of {length!r} bytes")
            files[name] = frame.blob[offset : offset + length]
            offset += length
    except (KeyError, TypeError, ValueError):
        raise _broken("an export without its files") from None
    return files


def _broken(what: str) -> frames.FrameError:
    return frames.FrameError(f"an answer that can't be: {what}")
