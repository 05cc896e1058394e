"""What the runner waits for: descriptors, each with a handler. A handler may return a role, which ends the loop's turn (see `runner`)."""

from __future__ import annotations

import select

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Handler = Callable[[], Any]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class Loop:
    """Level-triggered: a handler is called as long as there is something to do for it."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Handler] = {}

    def watch(self, fd: int, events: int, handler: Handler) -> None:
        """No effect on one that is watched already."""
        if fd not in self._handlers:
            self._poll.register(fd, events)
            self._handlers[fd] = handler

    def renew(self, fd: int) -> None:
        """Watch it as if for the first time."""
        self._poll.modify(fd, READ)

    def forget(self, fd: int) -> None:
        """To be called before the descriptor is closed. The only way to hear nothing: a hang-up can't be masked."""
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def turn(self, patience_s: float | None) -> Any:
        for fd, _ in self._poll.poll(patience_s):
            handler = self._handlers.get(fd)  # gone, if an earlier one of this turn has forgotten it
            if handler is not None and (role := handler()) is not None:
                return role
        return None
