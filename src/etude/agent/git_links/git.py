"""Git as a process: never asks, never opens an editor or a pager, speaks English, and its errors are ours to read."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from etude.core.trace.change import TextChange

TIMEOUT_S = 60.0
# Git sets these for its hooks; they would turn `-C` away from the folder it names.
_OF_A_HOOK = frozenset("GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX GIT_OBJECT_DIRECTORY GIT_COMMON_DIR".split())
# A text that a person's or an agent's edit made; larger blobs are data.
MAX_BLOB_BYTES = 4 << 20


class GitError(Exception):
    """Git refused, or isn't there."""


def git(folder: Path, *words: str, data: bytes | None = None) -> bytes:
    """What git prints. Raises GitError with git's own words."""
    name, mail = "etude", "etude@localhost"  # of commits in refs/notes: no person made them
    environment = {
        **{key: value for key, value in os.environ.items() if key not in _OF_A_HOOK},
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
    }
    # `core.fsmonitor` of a repository is a command line that `git status` runs.
    command = ["git", "-C", str(folder), "--no-pager", "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(command, input=data, capture_output=True, env=environment, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise GitError("git is not installed: links between commits and sessions need it") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {words[0]} took longer than {TIMEOUT_S:g} s in {folder}") from error
    if done.returncode:
        raise GitError(f"git {words[0]} in {folder}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def repository(folder: Path) -> Path:
    """The root of the repository a folder is in. Raises GitError."""
    try:
        return Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n"))).resolve()
    except GitError as error:
        raise GitError(f"{folder} is in no git repository; run this in one, or name it with --repository") from error


def commit_id(folder: Path, name: str) -> str:
    """The 40 digits of a commit. Raises GitError for a name that is none."""
    try:
        return (
            git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").decode().strip()
        )
    except GitError as error:
        raise GitError(f"{name!r} is no commit of {folder}") from error


def commit_changes(folder: Path, commit: str) -> list[TextChange]:
    """What a commit did to text files, against its parent; a merge did nothing of its own. Binary and huge files are left out."""
    raw = git(folder, "diff-tree", "-r", "-z", "--root", "--raw", "--no-commit-id", "--no-renames", commit)
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    found: list[TextChange] = []
    for meta, path in zip(fields[::2], fields[1::2], strict=False):
        _, _, old, new, _ = meta.split(" ")
        texts = [_text(folder, blob) for blob in (old, new)]
        if None not in texts:
            before, after = (text.text if text and text.there else None for text in texts)
            found.append(TextChange(path, before, after))
    return found


def file_text(folder: Path, commit: str, path: str) -> str | None:
    """A text file as a commit has it; None if it has none, or no text."""
    try:
        blob = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{path}").decode().strip()
    except GitError:
        return None
    found = _text(folder, blob)
    return found.text if found is not None else None


@dataclass(frozen=True)
class _Blob:
    there: bool
    text: str = ""


def _text(folder: Path, blob: str) -> _Blob | None:
    """None for what is no text."""
    if set(blob) == {"0"}:
        return _Blob(False)
    if int(git(folder, "cat-file", "-s", blob)) > MAX_BLOB_BYTES:
        return None
    data = git(folder, "cat-file", "blob", blob)
    try:
        return None if b"\0" in data else _Blob(True, data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


# The post-commit hook that links each commit as it is made.


MARK = "# etude: ties the commit to the sessions that wrote its lines"
LINE = "command -v etude >/dev/null 2>&1 && etude session link HEAD --write >/dev/null"
SCRIPT = f"#!/bin/sh\n{MARK}\n{LINE} || echo 'etude: this commit was not linked; etude session link HEAD --write says why' >&2\n"


def install_hook(repository: Path) -> Path:
    """Write the hook; one that is ours is renewed. Raises GitError if another hook is there: it is the person's."""
    path = repository / os.fsdecode(git(repository, "rev-parse", "--git-path", "hooks/post-commit").strip())
    if path.exists() and MARK not in path.read_text(errors="replace"):
        raise GitError(f"{path} exists and is not ours; add this line to it yourself: {LINE}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path
