"""What the shell completes for a run: run directories below runs/, and folders."""

from __future__ import annotations

from etude.cli.completion import paths
from etude.cli.status.listing import DEFAULT, run_folders


def complete_run(incomplete: str) -> list[str]:
    """Run directories below runs/ by path and by name, and the folders of the one that is being typed."""
    found = list(run_folders(DEFAULT)) if DEFAULT.is_dir() else []
    names = {str(path) for path in found} | {str(path.relative_to(DEFAULT)) for path in found}
    return sorted({*(name for name in names if name.startswith(incomplete)), *paths(incomplete, None)})


def complete_run_path(incomplete: str) -> list[str]:
    """Run directories below runs/ by path, for verbs that take no name."""
    found = {str(path) for path in run_folders(DEFAULT)} if DEFAULT.is_dir() else set()
    return sorted({*(name for name in found if name.startswith(incomplete)), *paths(incomplete, None)})
