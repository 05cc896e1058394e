"""What can be wrong with a suite, typed: each names the place, the value and the remedy."""

from __future__ import annotations

from etude.tasks.errors import TaskError


class SuiteError(TaskError):
    """A suite can't be read, made or frozen."""


class UnknownSuite(SuiteError):
    """No suite has this name; tells those that are near."""


class TaskChanged(SuiteError):
    """A task is not the one that was frozen."""


class NewerSuite(SuiteError):
    """The suite was written by a later version of this program."""
