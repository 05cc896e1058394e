"""How each file of a git repository came to be: its versions along the first parents of HEAD, oldest first.

Read as `git.py` reads (an empty repository that borrows the objects), so nothing that the repository says is run. A file that
was deleted and created again starts again; a rename begins a new file.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.core.sources.git import GitSource, git_environment, run_git

MOST_COMMITS = 20_000  # the newest: some megabytes of listing
REGULAR = ("100644", "100755")


class GitHistory:
    """`versions` are object ids by path, of files that still stand and changed at least once; `head` is the newest commit."""

    def __init__(self, versions: dict[str, list[str]], head: str, blobs: subprocess.Popen[bytes]) -> None:
        self.versions, self.head, self._blobs = versions, head, blobs

    def read(self, blob: str, most_bytes: int) -> bytes | None:
        """The object's bytes, None above `most_bytes`. Raises ChildProcessError for an object that git can't read."""
        stdin, stdout = self._blobs.stdin, self._blobs.stdout
        assert stdin is not None and stdout is not None
        stdin.write(blob.encode() + b"\n")
        stdin.flush()
        answer = stdout.readline().decode().split()
        if len(answer) != 3:
            raise ChildProcessError(
                f"git can't read the object {blob}: {' '.join(answer) or 'no answer'}; try `git fsck`"
            )
        data = stdout.read(int(answer[2]) + 1)[:-1]
        return data if len(data) <= most_bytes else None


@contextmanager
def history(repository: Path) -> Iterator[GitHistory | None]:
    """Of a folder inside a repository only what lies in it. None where there is no git repository or no commit. Raises
    SourceOffline where git is not installed."""
    source = GitSource("history", repository, Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="etude-history-") as scratch:
        view = Path(scratch) / "view"
        head = _head(source)
        if head is None:
            yield None
            return
        source.view(view)
        command = ["git", f"--git-dir={view}", "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=git_environment()) as blobs:
            try:
                yield GitHistory(_versions(view, head, source.prefix()), head, blobs)
            finally:
                assert blobs.stdin is not None
                blobs.stdin.close()


def _head(source: GitSource) -> str | None:
    try:
        found = source.head()
    except NotADirectoryError:
        return None
    return found[0] if found else None


def _versions(view: Path, head: str, prefix: str) -> dict[str, list[str]]:
    """Object ids by path below `prefix`."""
    listed = run_git(
        f"--git-dir={view}", "rev-list", "--first-parent", "--parents", f"--max-count={MOST_COMMITS}", head
    )  # fmt: skip
    # Only the first parent counts: what a merge brought is one change.
    pairs = [" ".join(line.split()[:2]) for line in listed.splitlines()]
    output = run_git(
        f"--git-dir={view}", "diff-tree", "--stdin", "-r", "-z", "--root", "--no-renames", "--raw", "--full-index",
        stdin="\n".join(reversed(pairs)) + "\n",
    )  # fmt: skip
    found: dict[str, list[str]] = {}
    words = iter(output.split("\0"))
    for word in words:
        if word.startswith(":"):  # :<old mode> <new mode> <old id> <new id> <letter>, then the path; else a commit's id
            old_mode, mode, old, new, _ = word[1:].split()
            _follow(found, next(words), old if old_mode in REGULAR else "", new if mode in REGULAR else "")
    return {path: ids for path, ids in found.items() if len(ids) > 1 and path.startswith(prefix)}


def _follow(found: dict[str, list[str]], path: str, old: str, new: str) -> None:
    """One change of one file: made, changed, or gone (or no regular file)."""
    chain = found.get(path, [])
    if not new:
        found.pop(path, None)
    elif old and chain[-1:] == [old]:
        if new != old:  # else only its mode changed
            chain.append(new)
    else:
        found[path] = [old, new] if old and old != new else [new]
