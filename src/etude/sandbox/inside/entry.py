"""Where a launched sandbox begins: bubblewrap, podman or no program made its surroundings, and started this interpreter in them.

The first frame out carries a pidfd of this very process (so no number can be reused under the client's hands), the first one in is the
spec. What the launcher promised is checked here by asking the kernel, not believed.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import functools
import gc
import os
import resource
import struct
from _socket import SCM_RIGHTS, SOL_SOCKET, socket

from etude.sandbox.inside import apart, around, cell, fault, files, frames, ground, keeper, seccomp, start, warm
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Role = Callable[[], Any]


def main(control_fd: int, program: int | str, code: int, isolated_network: str = "") -> None:
    """Serve one sandbox until the client closes its end. Each role runs on a clean stack. `program`: the C runner that this process
    becomes, as a descriptor or a path; -1: this interpreter serves. `code`: the descriptor of this program, for the warm interpreter; or -1.
    `isolated_network`: there are no namespaces yet; make them here, with a separate network ("none") or the machine's ("host")."""
    if isolated_network:
        around.isolate(control_fd, isolated_network)
    role: Role | None = functools.partial(_begin, control_fd, program, code)
    while role is not None:
        role = role()


def _begin(control_fd: int, program: int | str, code: int) -> Role | None:
    control = _introduced(control_fd)
    spec = cell.receive(control)
    if spec is None:
        os._exit(0)
    if program != -1:
        _become_native(program, control, spec, code)
    if code >= 0:
        os.close(code)
    for name in warm.PRELOAD:
        __import__(name)
    warm.dress(start.ENVIRONMENT)
    gc.collect()
    gc.freeze()
    gc.disable()
    if spec.head["place"]["kind"] == "process":
        try:
            return keeper.keep(control, spec)
        except OSError as error:
            control.sendall(frames.pack(frames.ERROR, 0, {**fault.explain(error), "error": "Unsupported"}))
            os._exit(1)
    place = ground.SandboxPaths(spec.head)
    place.excess = place.mounted_excess
    closing = functools.partial(_CLOSERS[spec.head["place"]["kind"]], control, spec.head, place)
    return cell.settle(control, spec, closing, place)


def _become_native(program: int | str, control: socket, spec: frames.Frame, code: int) -> None:
    """Close the sandbox, then become the C runner. It watches the file systems that the launcher mounted (`ground.mounted`)."""
    place = ground.SandboxPaths(spec.head)
    head = {**spec.head, "watched": ground.mounted(spec.head)}
    try:
        request = cell.in_memory(frames.pack(frames.SPEC, 0, head, spec.blob))
        _CLOSERS[spec.head["place"]["kind"]](control, spec.head, place)
        cell.execute(program, control, request, code if spec.head["python"] else -1)
    except (OSError, files.FileRequestError) as error:
        control.sendall(frames.pack(frames.ERROR, 0, fault.explain(error)))
        os._exit(1)


def _introduced(control_fd: int) -> socket:
    """The control socket, with the client knowing this process and no other descriptor of the host left open at 0 to 2."""
    # As stdin it is a socket of the host, which carries no descriptor: the launcher introduces this process.
    introduces = control_fd > 0
    if not introduces:
        control_fd = os.dup(control_fd)
    os.set_inheritable(control_fd, False)  # no command may ever hold it
    control = socket(fileno=control_fd)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as the zygote, until the cell closes
    if introduces:
        pidfd = os.pidfd_open(os.getpid())
        rights = (SOL_SOCKET, SCM_RIGHTS, struct.pack("i", pidfd))
        control.sendmsg([frames.pack(frames.HELLO, 0, {"pid": os.getpid()})], [rights])
        os.close(pidfd)
    return control


def _close_bubblewrap(control: socket, spec: dict[str, Any], place: ground.SandboxPaths) -> None:
    """bubblewrap made the namespaces; the filter and the limits are set here."""
    _open_door(control, spec)
    cell.limit(spec)
    sys_.drop_capabilities()
    sys_.install_filter(seccomp.program())
    sys_.require_locked()


def _close_around(control: socket, spec: dict[str, Any], place: ground.SandboxPaths) -> None:
    """The namespaces are this process' own; the file system, the filter and the limits are still to be made."""
    try:
        around.lay_out(spec)
        cell.raise_loopback() if spec["place"]["network"] != around.HOST_NETWORK else sys_.set_host_name("sandbox")
    except OSError as error:
        raise files.FileRequestError(
            "Unsupported", f"no sandbox can be made around {spec['workdir']}: {error}"
        ) from None
    _open_door(control, spec)
    cell.limit(spec)
    sys_.drop_capabilities()
    sys_.install_filter(seccomp.program())
    sys_.require_locked()


def _close_container(control: socket, spec: dict[str, Any], place: ground.SandboxPaths) -> None:
    """The container has its engine's own filter; ours comes on top, so that both refuse."""
    _open_door(control, spec)
    cell.limit(spec)
    if spec["place"].get("apart"):
        apart.settle(spec["pids"], place)
    sys_.drop_capabilities()
    sys_.install_filter(seccomp.program())
    sys_.require_locked()


def _open_door(control: socket, spec: dict[str, Any]) -> None:
    """The launcher has raised the loopback already."""
    if spec["place"].get("egress"):
        cell.grant(control, {"egress": cell.listen()})


_CLOSERS = {"container": _close_container, "bubblewrap": _close_bubblewrap, "around": _close_around}
