"""An error inside, as the client hears of it."""

from __future__ import annotations

import errno

from etude.sandbox.inside import files, frames

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

_USER_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EEXIST, errno.EROFS,
                errno.ENAMETOOLONG, errno.ENOTEMPTY, errno.EINVAL, errno.ENXIO, errno.EMLINK, errno.ENODEV, errno.EBUSY)  # fmt: skip


def explain(error: Exception) -> dict[str, Any]:
    """An error as the client's ERROR frame: the class of `protocol` to raise, and its message."""
    if isinstance(error, files.FileRequestError):
        return {"error": error.kind, "message": str(error)}
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return {"error": "DiskFull", "message": f"{error}; the spec's disk_mb is the limit"}
        kind = "UserError" if error.errno in _USER_ERRORS else "InfraError"
        return {"error": kind, "message": str(error)}
    if isinstance(error, frames.FrameTooLarge):
        return {"error": "OutputLimit", "message": str(error)}
    return {"error": "InfraError", "message": f"{type(error).__name__}: {error}"}
