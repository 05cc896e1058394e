"""Agent Trace records as git notes in `refs/notes/etude`: one record a line, one note a commit.

Git copies notes when a commit is amended or rebased, if `notes.rewriteRef` names the ref: writing the first note sets that
(in this repository's own configuration). A squash joins the notes of its commits. What is lost: `git cherry-pick`, a squash
merge by a forge, and history filters copy no notes; `git push` and `git clone` leave them out unless the ref is named.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Iterator

from etude.agent.git_links.agent_trace import Record, session_url, without_session
from etude.agent.git_links.git import GitError, git

REF = "refs/notes/etude"


def read_note(repository: Path, commit: str) -> list[Record]:
    """The records on a commit; none if it has no note. Raises GitError for a note that holds something else."""
    try:
        text = git(repository, "notes", f"--ref={REF}", "show", commit)
    except GitError as error:
        if "no note found" in str(error).lower():
            return []
        raise
    return _records(text, f"the note in {REF} on {commit[:12]}")


def write_note(repository: Path, commit: str, record: Record) -> None:
    """Put a record on a commit: in place of one for the same revision, in addition to others (of commits that were squashed)."""
    revision = record["vcs"]["revision"]
    others = [found for found in read_note(repository, commit) if found.get("vcs", {}).get("revision") != revision]
    _put(repository, commit, [*others, record])
    follow_rewrites(repository)


def follow_rewrites(repository: Path) -> None:
    """Let amend and rebase take the notes along."""
    try:
        known = git(repository, "config", "--local", "--get-all", "notes.rewriteRef").decode().split()
    except GitError:  # git's way of saying that there is none
        known = []
    if REF not in known:
        git(repository, "config", "--local", "--add", "notes.rewriteRef", REF)


def noted_commits(repository: Path) -> list[str]:
    """The commits that have a note."""
    if not _tip(repository):
        return []
    return [line.split()[1] for line in git(repository, "notes", f"--ref={REF}", "list").decode().splitlines()]


def forget_session(repository: Path, session_id: str) -> int:
    """Take a session out of every note, and out of the notes' history; how many notes named it.

    The ref starts again without a parent, its reflog goes, and the loose objects that held the old notes are removed. An
    old note inside a pack stays until git repacks without it (`git gc --prune=now`); `still_there` tells.
    """
    named = [c for c in noted_commits(repository) if any(_names(r, session_id) for r in read_note(repository, c))]
    old = blobs_naming(repository, session_id)
    for commit in named:
        kept = [found for record in read_note(repository, commit) if (found := without_session(record, session_id))]
        if kept:
            _put(repository, commit, kept)
        else:
            git(repository, "notes", f"--ref={REF}", "remove", commit)
    if old:
        _start_again(repository)
        for blob in {*old} - {*blobs_naming(repository, session_id)}:
            (_objects(repository) / blob[:2] / blob[2:]).unlink(missing_ok=True)
    return len(named)


def blobs_naming(repository: Path, session_id: str) -> list[str]:
    """The note objects, of the present and of the notes' history, that name a session."""
    if not _tip(repository):
        return []
    listed = git(repository, "rev-list", "--objects", REF)
    objects = b"".join(line.split(b" ", 1)[0] + b"\n" for line in listed.splitlines() if b" " in line)
    needles = (
        json.dumps(session_id).encode(),
        json.dumps(session_url(session_id)).encode(),
    )  # quoted: "s-1" is not in "s-10"
    batch = git(repository, "cat-file", "--batch", data=objects)
    return [number for number, data in _batch(batch) if any(needle in data for needle in needles)]


def still_there(repository: Path, objects: list[str]) -> list[str]:
    """Of these objects, those that the repository can still show."""
    asked = "".join(f"{number}\n" for number in objects).encode()
    lines = git(repository, "cat-file", "--batch-check", data=asked).decode().splitlines() if objects else []
    return [number for number, line in zip(objects, lines, strict=True) if not line.endswith("missing")]


def _batch(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The blobs of `git cat-file --batch`: a line `<id> <type> <size>`, the bytes, a newline, for each object."""
    at = 0
    while at < len(data):
        stop = data.index(b"\n", at)
        number, kind, size = data[at:stop].decode().split(" ")
        body = data[stop + 1 : stop + 1 + int(size)]
        if kind == "blob":
            yield number, body
        at = stop + 1 + int(size) + 1


def _start_again(repository: Path) -> None:
    tip = _tip(repository)
    if not git(repository, "ls-tree", tip).strip():
        git(repository, "update-ref", "-d", REF)
        return
    tree = git(repository, "rev-parse", f"{tip}^{{tree}}").decode().strip()
    commit = git(repository, "commit-tree", tree, "-m", "Notes of etude sessions").decode().strip()
    git(repository, "update-ref", REF, commit)
    git(repository, "reflog", "expire", "--expire=now", REF)


def _names(record: Record, session_id: str) -> bool:
    return without_session(record, session_id) != record


def _put(repository: Path, commit: str, records: list[Record]) -> None:
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    git(repository, "notes", f"--ref={REF}", "add", "-f", "-F", "-", commit, data=text.encode())


def _records(text: bytes, place: str) -> list[Record]:
    records = []
    for line in filter(bytes.strip, text.split(b"\n")):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or "files" not in record or "revision" not in record.get("vcs", {}):
            raise GitError(f"{place} holds a line that is no Agent Trace record: {line[:60]!r}")
        records.append(record)
    return records


def _tip(repository: Path) -> str:
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", REF).decode().strip()
    except GitError:  # git's way of saying that there is no such ref
        return ""


def _objects(repository: Path) -> Path:
    return (repository / os.fsdecode(git(repository, "rev-parse", "--git-path", "objects").strip())).resolve()
