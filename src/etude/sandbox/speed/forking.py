"""Forks of a repository: 2,000 files of which 70 were changed since its snapshot."""

from __future__ import annotations

import asyncio
import io
import tarfile
import time

from etude.sandbox.errors import SandboxError
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.speed.single import SPEC

FILES, CHANGED, FILE_BYTES = 2000, 70, 4800


def tree() -> bytes:
    """The repository as an archive: 2,000 files of 4.8 kB in 40 folders, 9.6 MB."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(FILES):
            member = tarfile.TarInfo(_name(number))
            member.size = FILE_BYTES
            archive.addfile(member, io.BytesIO(f"{number:08d}\n".encode() * (FILE_BYTES // 9 + 1)))
    return stream.getvalue()


def _name(number: int) -> str:
    return f"repo/d{number % 40:02d}/f{number:04d}.py"


class Forking:
    """A sandbox over the repository's snapshot; every fork comes after its 70 files were written anew."""

    def __init__(self, parent: Sandbox) -> None:
        self._parent = parent
        self._round = 0

    @classmethod
    async def over(cls, pool: SandboxPool) -> Forking:
        first = await pool.create(SPEC)
        await first.put_tar(".", tree())
        snapshot = await first.snapshot("speed")
        parent = (await pool.restore(snapshot, SPEC))[0]
        await first.kill()
        if isinstance(parent, SandboxError):
            raise parent
        return cls(parent)

    async def fork(self, children: int) -> float:
        """From the call until each child has ended its first command."""
        self._round += 1
        step = FILES // CHANGED
        numbers = f"$(seq 0 {step} {step * (CHANGED - 1)})"
        name = "$(printf 'repo/d%02d/f%04d.py' $((i % 40)) $i)"
        script = f"for i in {numbers}; do echo {self._round} >> {name}; done"
        done = await self._parent.run(script)
        if done.rc != 0:
            raise RuntimeError(f"changing the files failed: {done.err!r}")
        start = time.perf_counter()
        made = await self._parent.fork(children)
        alive = [one for one in made if not isinstance(one, SandboxError)]
        await asyncio.gather(*(one.run(["true"]) for one in alive))
        spent_s = time.perf_counter() - start
        await asyncio.gather(*(one.kill() for one in alive))
        if len(alive) != children:
            raise next(one for one in made if isinstance(one, SandboxError))
        return spent_s

    async def close(self) -> None:
        await self._parent.kill()
