"""A command whose output is kept, head and tail, until it has ended (RUN)."""

from __future__ import annotations

from etude.sandbox.inside import fault, frames, job
from etude.sandbox.inside.loop import READ
from etude.sandbox.inside.output import Output

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

    from etude.sandbox.inside.loop import Loop


class BufferedJob(job.Job):
    def __init__(self, stream: int, request: dict[str, Any], stdin: bytes, loop: Loop) -> None:
        super().__init__(stream, request, stdin, loop)
        limit = int(request["max_output_bytes"])
        self._outputs = {1: Output(limit), 2: Output(limit)}

    def prepare(self) -> None:
        self.open_outputs(job.given(self.stdin, self.request["tmp"]))

    def begin(self) -> None:
        for fd in self.open:
            self.loop.watch(fd, READ, lambda fd=fd: self._drain(fd))

    def settle(self) -> bool:
        for fd in list(self.open):
            self._drain(fd)
        self.leave()
        return True

    def _drain(self, fd: int) -> None:
        data = job.read(fd)
        if data:
            self._outputs[self.open[fd]].add(data)
        elif data is not None:
            self.close(fd)

    def answer(self) -> bytes:
        (out, cut_out), (err, cut_err) = (output.result() for output in self._outputs.values())
        head = {**self.end(), "out": len(out), "truncated": cut_out or cut_err}
        try:
            return frames.pack(frames.OK, self.stream, head, out + err + self.note)
        except frames.FrameTooLarge as error:
            return frames.pack(frames.ERROR, self.stream, fault.explain(error))

    def refusal(self, code: int, message: bytes) -> bytes:
        head = {**job.NOT_STARTED, "rc": code, "out": 0, "truncated": False}
        return frames.pack(frames.OK, self.stream, head, message[: int(self.request["max_output_bytes"])])
