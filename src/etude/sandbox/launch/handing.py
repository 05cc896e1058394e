"""A control socket for a program that can inherit nothing: it connects to a socket in a folder, and gets it from there, once."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from etude.sandbox.errors import InfraError
from etude.sandbox.launch import bundle
from etude.sandbox.launch.launcher import Programs
from etude.sandbox.native.build import RUNNER_MODE

FOLDER = "/opt/etude/door"  # inside
PROGRAM, RUNNER = "/opt/etude/program", "/opt/etude/runner"
# As `bundle.FROM_FILE`, with the descriptor out of the folder's socket.
START = (
    "import _socket as s,marshal;c=s.socket(s.AF_UNIX);"
    f"c.connect('{FOLDER}/socket');fd=int.from_bytes(c.recvmsg(1,64)[1][0][2],'little');c.close();"
    f"import os;code=os.open('{PROGRAM}',os.O_RDONLY);c,m=marshal.loads(os.pread(code,1<<24,0));"
    "exec(c,{{'m':m,'fd':fd,'runner':{runner!r},'code':code}})"
)
_PATIENCE_S = 25.0  # a container takes 0.3 s on a quiet machine
_LOOK_S = 0.1
_LONGEST = 107  # bytes of a socket's path


class SocketHandover:
    """The folder and the listening socket in it; `give` serves the one who comes, and then no other."""

    def __init__(self, folder: Path, uid: int, control: int, files: ExitStack) -> None:
        self.folder, self._uid, self._control = folder, uid, control
        self._path = folder / "socket"
        if len(os.fsencode(self._path)) > _LONGEST:
            raise InfraError(f"{self._path} is too long for a socket; set TMPDIR to a shorter folder")
        folder.mkdir(mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX)
        files.callback(self._listener.close)
        self._listener.bind(str(self._path))
        self._path.chmod(0o600)
        if uid != os.geteuid():
            for path in (folder, self._path):
                os.chown(path, uid, uid)
        self._listener.listen(1)

    def give(self, process: subprocess.Popen[bytes]) -> None:
        """Returns when it is given, or when the launcher has ended: then the control socket tells. Raises InfraError."""
        end_s = time.monotonic() + _PATIENCE_S
        self._listener.settimeout(_LOOK_S)
        while process.poll() is None:
            try:
                taker, _ = self._listener.accept()
            except TimeoutError:
                if time.monotonic() > end_s:
                    process.kill()
                    raise InfraError(
                        f"no process connected to the control socket within {_PATIENCE_S} s; is the engine on this machine?"
                    ) from None
                continue
            with taker:
                socket.send_fds(taker, [b"c"], [self._control])
            self._path.unlink()
            return


INHERITED = (3, 4, 5)  # the control socket, the code, the C runner if there is one
_HIGH = 64  # they are copied to numbers above this first, so that those are free
# A shell can't name descriptors above 9. The first word lists the copies.
RENUMBER = (
    "import os, sys; high = [int(word) for word in sys.argv[1].split(',')]; "
    f"[os.dup2(fd, low) for fd, low in zip(high, {INHERITED})]; [os.close(fd) for fd in high]; os.execv(sys.argv[2], sys.argv[2:])"
)


def duplicate_high(descriptors: tuple[int, ...], files: ExitStack) -> list[int]:
    """Copies for `RENUMBER`'s command line, closed with `files`."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in descriptors]
    for fd in high:
        files.callback(os.close, fd)
    return high


def inherited_command(programs: Programs) -> str:
    """The program text for an interpreter that has inherited the descriptors by `RENUMBER`."""
    control, code, runner = INHERITED
    return bundle.COMMAND.format(code=code, control=control, runner=runner if programs.runner >= 0 else -1)


def install_runner(runner: int, target: Path) -> None:
    """Copy the C runner into a root file system. Others may execute it and not read it (see `native.build`)."""
    size = os.fstat(runner).st_size
    target.write_bytes(os.pread(runner, size, 0))
    target.chmod(RUNNER_MODE)
