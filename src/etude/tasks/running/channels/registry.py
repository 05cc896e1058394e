"""Every channel by the name of its runner (`tasks.environment.environment.Runner`)."""

from __future__ import annotations

from etude.tasks.errors import TaskError
from etude.tasks.running.channel import Channel
from etude.tasks.running.channels.appended import CHANNELS
from etude.tasks.running.channels.exit_status import ExitChannel
from etude.tasks.running.channels.pytest_channel import PytestChannel

EXIT = ExitChannel()
_ALL: dict[str, Channel] = {"pytest": PytestChannel(), "exit": EXIT, **CHANNELS}


def channel(kind: str) -> Channel:
    """Raises TaskError."""
    if kind not in _ALL:
        raise TaskError(f"no runner {kind!r}; there are {', '.join(_ALL)}")
    return _ALL[kind]
