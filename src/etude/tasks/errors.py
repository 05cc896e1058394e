"""What can be wrong with tasks and folders of them, typed: each names the place, the value and the remedy."""

from __future__ import annotations

from etude.sandbox.errors import Unsupported


class TaskDefective(Unsupported):
    """A task by which no attempt can be judged: its own reference or its own files show it. Not the machine's fault, and no attempt's."""


class TaskError(Exception):
    """A task, or a folder of them, can't be read, made or kept."""
