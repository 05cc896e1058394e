"""Links and executable files of a sandbox, which is created with plain files alone: they are placed and read by a few commands for all.

An agent decides how many links there are and where. So the paths of many links go into one command, their number is limited, and nothing is
written through a link that was placed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable
from etude.tasks.content import EXECUTABLE, LINK, FileBytes, folders_of, mode_of

COMMAND_S = 60.0
MAX_LINKS = 10_000
OUTPUT_BYTES = 1 << 20  # of one command, hence of the targets of its links
ARGUMENT_BYTES = 100_000  # of one command; Linux takes 2 MiB with the environment
# GNU's readlink reads many links and ends each with a NUL; others read one.
READ = """
if readlink -z -- "$1" "$1" > /dev/null 2>&1; then exec readlink -z -- "$@"; fi
for path; do readlink -n -- "$path" && printf '\\0' || exit 1; done
"""
# A folder in the place of a link holds nothing of the tree (`require_folders`), only what was removed from it or built in it.
PLACE = """
while [ $# -gt 0 ]; do
  [ -d "${2%/*}" ] || mkdir -p -- "${2%/*}" || exit 1
  if [ -e "$2" ] || [ -L "$2" ]; then rm -rf -- "$2" || exit 1; fi
  ln -s -- "$1" "$2" || exit 1
  shift 2
done
"""
CLEAR = 'rm -rf -- "$@"'


def require_folders(files: Mapping[str, bytes]) -> None:
    """Raises UserError for a tree in which a link or a file is in the place of another path's folder."""
    for path in files:
        for folder in folders_of(path):
            if folder in files:
                kind = "link" if mode_of(files[folder]) == LINK else "file"
                raise UserError(
                    f"the tree has {path}, and the {kind} {folder} in the place of its folder; keep one of them"
                )


async def targets(sandbox: Disposable, links: Sequence[str]) -> dict[str, bytes]:
    """The links with what they say. Raises UserError for too many, or one that can't be read."""
    if len(links) > MAX_LINKS:
        raise UserError(
            f"there are {len(links)} links, at most {MAX_LINKS} are read; remove those that the work does not need"
        )
    found: dict[str, bytes] = {}
    for batch in _batches([(path,) for path in links]):
        done = await _run(sandbox, READ, [f"./{path}" for (path,) in batch], f"the links {batch[0][0]} … can't be read")
        answers = done.split(b"\0")[:-1]
        if len(answers) != len(batch):
            raise UserError(
                f"the links {batch[0][0]} … can't be read: {len(batch)} were asked for, {len(answers)} were answered"
            )
        found |= {path: FileBytes(target, LINK) for (path,), target in zip(batch, answers, strict=True)}
    return found


async def place_files(sandbox: Disposable, files: Mapping[str, bytes]) -> None:
    """Writes files with their modes, and links, over what is there. Raises UserError, InfraError."""
    require_folders(files)
    links = [(os.fsdecode(bytes(data)), path) for path, data in files.items() if mode_of(data) == LINK]
    for batch in _batches([(path,) for path, data in files.items() if mode_of(data) != LINK]):
        await _run(sandbox, CLEAR, [f"./{path}" for (path,) in batch], f"{batch[0][0]} … can't be made")
    for path, data in files.items():
        if mode_of(data) != LINK:
            await sandbox.write(path, bytes(data), mode=0o755 if mode_of(data) == EXECUTABLE else 0o644)
    for batch in _batches(links):
        arguments = [argument for target, path in batch for argument in (target, f"./{path}")]
        await _run(sandbox, PLACE, arguments, f"{batch[0][1]} … can't be made")


def _batches(rows: Sequence[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """The rows in order, so that the arguments of each batch fit in one command."""
    batch: list[tuple[str, ...]] = []
    size = 0
    for row in rows:
        length = sum(len(os.fsencode(argument)) + 3 for argument in row)
        if batch and size + length > ARGUMENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


async def _run(sandbox: Disposable, script: str, arguments: Sequence[str], what: str) -> bytes:
    """What a script says of its arguments. Raises UserError."""
    done = await sandbox.run(["sh", "-c", script, "sh", *arguments], timeout_s=COMMAND_S, max_output_bytes=OUTPUT_BYTES)
    if done.rc != 0 or done.truncated:
        problem = f"over {OUTPUT_BYTES} bytes" if done.truncated else done.err.decode("utf-8", "replace").strip()[:200]
        raise UserError(f"{what}: {problem}")
    return done.out
