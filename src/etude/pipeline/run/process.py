"""One stage in a process of its own: stages that don't need each other run together, and each gives its memory back.

The child has its share of the cores, tells its costs as it goes, and dies with the run however that dies. Ctrl-C reaches it
through the run alone (it leads a process group of its own), so that it is interrupted once and cleans up in peace.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from etude.core.allocator import forget_preload, preloaded
from etude.core.parent import die_with
from etude.pipeline.run.machine import usable_cores
from etude.pipeline.run.meter import Meter, StageCost
from etude.pipeline.run.stage import Context, Stage, StageError

STOP_S = 30.0  # what an interrupted stage gets for ending sandboxes and Ray before it is killed


class StageTraceback(Exception):
    """Where in the child's code an error was raised; the cause of the error as the run sees it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class StageProcess:
    """A started stage. `receive` is called when `connection` is readable; `cost` has its costs so far."""

    def __init__(self, stage: Stage, context: Context) -> None:
        self.stage = stage
        self.cost = StageCost()
        self.finished = False
        self.error: BaseException | None = None
        self.connection, theirs = multiprocessing.Pipe(duplex=False)
        spawn = multiprocessing.get_context("spawn")  # a fork would carry the run's threads half-alive
        self._process = spawn.Process(target=_main, args=(theirs, stage, context, os.getpid()), name=stage.name)
        with preloaded():
            self._process.start()
        theirs.close()

    def receive(self) -> bool:
        """Takes one message; False if the process ended and nothing will come any more."""
        try:
            kind, value, *where = self.connection.recv()
        except EOFError:
            self._process.join()
            if not self.finished and self.error is None:
                self.error = StageError(self._death())
            return False
        if kind == "cost":
            self.cost = value
        elif kind == "finished":
            self.finished = True
        else:
            value.__cause__ = StageTraceback(*where)
            self.error = value
        return True

    def stop(self) -> None:
        """Interrupts it, waits, and kills it if it does not end."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGINT)
        try:
            self._process.join(STOP_S)
        finally:  # also when the person presses Ctrl-C again
            self._process.kill()
            self._process.join()
            self.connection.close()

    def _death(self) -> str:
        code = self._process.exitcode or 0
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        hint = "; perhaps memory ran out" if code == -signal.SIGKILL else ""
        return f"stage {self.stage.name}: its process {cause}{hint}. Run the same command again and it goes on"


def threads_for(share: float) -> int:
    """Threads of the CPU kernels for a stage's share of the cores, at least one."""
    return max(1, int(usable_cores() * share))


def _main(connection: Connection, stage: Stage, context: Context, run_pid: int) -> None:
    """The child's life."""
    die_with(run_pid)
    forget_preload()
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
    threads = min(threads_for(stage.share), int(os.environ.get("OMP_NUM_THREADS") or 2**16))
    os.environ["OMP_NUM_THREADS"] = str(threads)  # torch is not imported yet
    os.nice(stage.nice)
    send_lock = threading.Lock()  # the meter reports from its own thread

    def tell(*message: Any) -> None:
        with send_lock:
            connection.send(message)

    try:
        with Meter(lambda cost: tell("cost", cost)):
            stage.load()(context)
        tell("finished", None)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)  # the run knows: it sent the signal
    except Exception as error:  # noqa: BLE001 - it is raised again in the run
        tell("error", _portable(error), traceback.format_exc())


def _portable(error: Exception) -> Exception:
    """The error itself if it survives the way to another process, else its words."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:  # noqa: BLE001 - whatever its own pickling raises
        return RuntimeError(f"{type(error).__name__}: {error}")
