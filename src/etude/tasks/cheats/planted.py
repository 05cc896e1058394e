"""Python that is planted where a runner would import it: it ends the run, or makes the runner lie."""

from __future__ import annotations

from etude.tasks.cheats import python

EXIT = python.EXIT.encode()
PATCH = python.REPORTS.encode()
