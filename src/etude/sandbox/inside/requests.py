"""Requests that have one answer at once: the files."""

from __future__ import annotations

from etude.sandbox.inside import fault, files, frames

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any


def answer(store: files.FileOperations, frame: frames.Frame) -> bytes:
    """OK. Raises OSError, Refused or TooLarge for what can't be served, FrameError for what is no such request."""
    head, blob = _serve(store, frame)
    return frames.pack(frames.OK, frame.stream, head, blob)


def refusal(frame: frames.Frame, error: OSError | files.FileRequestError | frames.FrameTooLarge) -> bytes:
    """ERROR."""
    explained = fault.explain(error)
    if isinstance(error, OSError):
        explained["message"] = f"{frame.head.get('path')}: {explained['message']}"
    return frames.pack(frames.ERROR, frame.stream, explained)


def _serve(store: files.FileOperations, frame: frames.Frame) -> tuple[dict[str, Any], bytes]:
    head = frame.head
    if frame.kind == frames.READ:
        return {}, store.read(head["path"], head["max_bytes"], head["offset"])
    if frame.kind == frames.WRITE:
        store.write(head["path"], frame.blob, head["mode"])
        return {}, b""
    if frame.kind == frames.LIST:
        return {"entries": store.list(head["path"], head["recursive"], head["max_entries"])}, b""
    if frame.kind == frames.STAT:
        return {"entry": store.stat(head["path"])}, b""
    if frame.kind == frames.REMOVE:
        store.remove(head["path"])
        return {}, b""
    if frame.kind == frames.EXPORT:
        found = store.export(head["path"], head["max_bytes"])
        return {"files": [[name, len(data)] for name, data in found]}, b"".join(data for _, data in found)
    raise frames.FrameError(f"a frame of type {frame.kind} is no request")
