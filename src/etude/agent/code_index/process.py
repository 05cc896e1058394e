"""The service of bases as a separate process next to the one that runs rollouts: started, watched, started again, ended.

python -m etude.agent.code_index.process SOCKET FOLDER      serves bases kept in FOLDER until its input ends, as it does with its parent
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from etude.agent.code_index.bases import Bases
from etude.agent.code_index.errors import ServiceLost
from etude.agent.code_index.service import Service

READY = b"ready\n"
# Imports and a socket take a second; on a machine that is busy with a run, some.
START_S = 60.0
END_S = 5.0


class BaseService:
    """Belongs to one event loop. `socket` is valid after the first `ensure`."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="etude-index-"))  # its owner's alone; a socket's path must be short
        self.socket = self._home / "socket"
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def ensure(self) -> None:
        """There is a living service. Raises ServiceLost where none can be started."""
        async with self._lock:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._start()

    async def close(self) -> None:
        """Ends the process and takes its bases away."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), END_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        shutil.rmtree(self._home)

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        argv = (
            sys.executable,
            "-P",
            "-m",
            "etude.agent.code_index.process",
            str(self.socket),
            str(self._home / "bases"),
        )
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        try:
            said = await asyncio.wait_for(process.stdout.readline(), START_S)
        except TimeoutError:
            said = b""
        if said != READY:
            if process.returncode is None:
                process.kill()
            await process.wait()
            raise ServiceLost("the index service did not start; what it wrote to stderr says why")
        return process


def serve(socket: Path, folder: Path) -> None:
    """Until standard input ends."""
    with Service(socket, [], bases=Bases(folder)) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        sys.stdin.buffer.read()
        service.shutdown()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
