"""What can be wrong with tasks and folders of them, typed: each names the place, the value and the remedy."""

from __future__ import annotations


class TaskError(Exception):
    """A task, or a folder of them, can't be read, made or kept."""
