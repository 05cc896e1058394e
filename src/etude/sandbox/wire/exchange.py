"""What a request waits for. A call takes one answer; processes and archives take many frames, and are exchanges of their own."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from etude.sandbox import errors
from etude.sandbox.inside import frames

# Only these names may come from the far side; anything else is an InfraError.
_ERRORS: dict[str, type[errors.SandboxError]] = {
    kind.__name__: kind
    for kind in (
        errors.UserError, errors.PidsExhausted, errors.DiskFull, errors.OutputLimit, errors.OOMKilled,
        errors.CapacityExhausted, errors.Unsupported,
    )
}  # fmt: skip


class StreamExchange(Protocol):
    """The client's side of one stream."""

    limit_bytes: int  # of one frame's payload, but for a little JSON
    expects: frozenset[int]  # types of frames that may come
    descriptors: int  # that come with OK

    def take(self, frame: frames.Frame, descriptors: list[int]) -> None:
        """A frame of this stream; the descriptors are its own from now on. Raises FrameError for what the protocol does not allow."""
        ...

    def fail(self, cause: errors.SandboxError) -> None:
        """The connection is gone; nothing will come any more. No effect after the last answer."""
        ...


class PendingCall:
    """One answer, awaited as `answer`. It may come after the caller has gone."""

    expects = frozenset((frames.OK, frames.ERROR))

    def __init__(self, limit_bytes: int, descriptors: int = 0) -> None:
        self.limit_bytes, self.descriptors = limit_bytes, descriptors
        self.answer: asyncio.Future[tuple[frames.Frame, list[int]]] = asyncio.get_running_loop().create_future()

    def take(self, frame: frames.Frame, descriptors: list[int]) -> None:
        if self.answer.done():
            for fd in descriptors:
                os.close(fd)
        elif frame.kind == frames.ERROR:
            self.fail(error_of_frame(frame))
        else:
            self.answer.set_result((frame, descriptors))

    def fail(self, cause: errors.SandboxError) -> None:
        if not self.answer.done():
            self.answer.set_exception(cause)
            self.answer.exception()  # seen: a caller that awaits it still gets it

    def forsake(self) -> None:
        """The caller has gone: descriptors that came at the same moment, or later, have no owner."""
        if self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None:
            for fd in self.answer.result()[1]:
                os.close(fd)


def error_of_frame(frame: frames.Frame) -> errors.SandboxError:
    """What an ERROR frame says, as the exception to raise."""
    kind = _ERRORS.get(str(frame.head.get("error")), errors.InfraError)
    return kind(str(frame.head.get("message", "no message")))


def closes(frame: frames.Frame) -> bool:
    """Whether it is the last of its stream."""
    return frame.kind in (frames.OK, frames.ERROR, frames.EXIT) or (
        frame.kind == frames.TREE and bool(frame.head.get("last"))
    )
