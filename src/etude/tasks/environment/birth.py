"""An agent's sandbox of a real project at its birth: caches and byte code gone, the history rebuilt as one commit that can be proved.

The proof is a count: git's objects are exactly the distinct blobs and trees of the task's files, and one commit, by a neutral author at a
neutral date; no remote, no pack, no reflog, no other ref. What was known by the objects is computed from the files alone, out here.
"""

from __future__ import annotations

import hashlib
from typing import Any

from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Operations
from etude.tasks.content import LINK, mode_of
from etude.tasks.task import Task

DATE = "2000-01-01T00:00:00Z"
LIMIT_S = 60.0
CACHES = (
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".nyc_output",
    ".tox",
    "htmlcov",
    ".cache",
)
# Paths come on stdin, so that what is installed in the workspace (node_modules) is neither searched nor committed.
BEGIN = r"""
set -e
find . \( -name node_modules -o -name .venv \) -prune -o \( @CACHES@ \) -prune -exec rm -rf {} + 2>/dev/null
find . \( -name node_modules -o -name .venv \) -prune -o -name '*.py[co]' -exec rm -f {} +
rm -rf .git
command -v git > /dev/null || { echo none; exit 0; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=/nonexistent
export GIT_AUTHOR_NAME=project GIT_AUTHOR_EMAIL=project@localhost GIT_COMMITTER_NAME=project GIT_COMMITTER_EMAIL=project@localhost
export GIT_AUTHOR_DATE=@WHEN@ GIT_COMMITTER_DATE=@WHEN@
git init -q --template= -b main .
mkdir -p .git/info
printf 'node_modules/\n__pycache__/\n*.pyc\n.venv/\n' > .git/info/exclude
git -c core.autocrlf=false -c core.fileMode=false add -f --pathspec-from-file=- --pathspec-file-nul
git -c core.logAllRefUpdates=false -c gc.auto=0 commit -q --no-verify --allow-empty -m 'The project'
git config user.name developer
git config user.email developer@localhost
rm -rf .git/logs .git/COMMIT_EDITMSG
echo made
"""
LOOK = r"""
command -v git > /dev/null && [ -d .git ] || { echo none; exit 0; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=/nonexistent
echo "objects $(git cat-file --batch-all-objects --batch-check | wc -l)"
echo "commits $(git rev-list --all --reflog | wc -l)"
echo "refs $(git for-each-ref | wc -l)"
echo "remotes $(git remote | wc -l)"
echo "packs $(ls .git/objects/pack 2>/dev/null | wc -l)"
echo "reflogs $(find .git/logs -type f 2>/dev/null | wc -l)"
echo "alternates $(ls .git/objects/info/alternates 2>/dev/null | wc -l)"
"""


async def begin(sandbox: Operations, task: Task) -> None:
    """Raises InfraError where the history can't be made though git is there."""
    names = " -o ".join(f"-name '{name}'" for name in CACHES)
    script = BEGIN.replace("@CACHES@", names).replace("@WHEN@", DATE)
    paths = b"\0".join(path.encode() for path in sorted(task.files))
    done = await sandbox.run(["sh", "-c", script], stdin=paths, timeout_s=LIMIT_S)
    if done.rc != 0:
        output = (done.err or done.out)[-300:].decode("utf-8", "replace").strip()
        raise InfraError(f"the history of {task.id} can't be made: {output}")


async def history_of(sandbox: Operations, task: Task) -> dict[str, Any] | None:
    """The proof, with `clean`; None where there is no git inside, hence no history."""
    done = await sandbox.run(["sh", "-c", LOOK], timeout_s=LIMIT_S)
    lines = [line.split() for line in done.out.decode().splitlines()]
    if done.rc != 0 or lines == [["none"]]:
        return None
    found = {name: int(number) for name, number in lines}
    expected = objects(task)
    nothing = not any(found[name] for name in ("remotes", "packs", "reflogs", "alternates"))
    clean = found["objects"] == expected and found["commits"] == 1 and found["refs"] == 1 and nothing
    return found | {"expected": expected, "clean": clean}


def objects(task: Task) -> int:
    """Distinct blobs and trees of the task's files, and the commit."""
    tree: dict[str, Any] = {}
    for path, text in task.files.items():
        *folders, name = path.split("/")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = text.encode()
    seen: set[bytes] = set()
    _hashed(tree, seen)
    return len(seen) + 1


def _kind(node: dict[str, Any] | bytes) -> bytes:
    return b"link " if mode_of(node) == LINK else b""


def _hashed(node: dict[str, Any] | bytes, seen: set[bytes]) -> bytes:
    """git's own name for it, but for the modes of files, which the history leaves out: what is equal there is equal here."""
    if isinstance(node, bytes):
        encoded = b"blob %d\0" % len(node) + node
    else:
        rows = [_kind(inner) + name.encode() + b"\0" + _hashed(inner, seen) for name, inner in sorted(node.items())]
        encoded = b"tree\0" + b"".join(rows)
    digest = hashlib.sha256(encoded).digest()
    seen.add(digest)
    return digest
