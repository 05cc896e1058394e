"""The difference of two trees of text as `git apply` takes it. A fake has no git: binary files are refused, not mangled."""

from __future__ import annotations

import difflib

from etude.sandbox.errors import Unsupported
from etude.sandbox.fake.files import FakeFiles
from etude.sandbox.fake.layer import FakeFile, FakeLayer


def git_patch(files: FakeFiles, since: tuple[FakeLayer, ...]) -> bytes:
    below = files.workdir.strip("/") + "/"
    old = FakeFiles(files.workdir, 0, since)
    parts = [
        _one(change.path.removeprefix(below), old.find(change.path), files.find(change.path))
        for change in files.changes(since)
        if change.path.startswith(below)
    ]
    return "".join(parts).encode()


def _one(name: str, before: FakeFile | None, after: FakeFile | None) -> str:
    lines = [f"diff --git a/{name} b/{name}\n"]
    if before is None and after is not None:
        lines.append(f"new file mode 100{_mode(after)}\n")
    elif after is None and before is not None:
        lines.append(f"deleted file mode 100{_mode(before)}\n")
    elif before is not None and after is not None and _mode(before) != _mode(after):
        lines += [f"old mode 100{_mode(before)}\n", f"new mode 100{_mode(after)}\n"]
    hunks = difflib.unified_diff(
        _lines(name, before),
        _lines(name, after),
        f"a/{name}" if before else "/dev/null",
        f"b/{name}" if after else "/dev/null",
    )
    for line in hunks:
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _mode(file: FakeFile) -> str:
    return "755" if file.mode & 0o100 else "644"


def _lines(name: str, file: FakeFile | None) -> list[str]:
    try:
        text = file.data.decode() if file else ""
    except UnicodeDecodeError:
        raise Unsupported(f"git_patch: {name} is binary, and back end fake has no git; take diff and read") from None
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
