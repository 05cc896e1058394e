"""Which of a distribution's packages this machine has: a sandbox sees its system folders, and installs none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from etude.tasks.generate.install.container import Container

_PATIENCE_S = 30.0
_FORMAT = "${Package} ${db:Status-Status}\n"


def missing_packages(packages: Sequence[str]) -> tuple[str, ...]:
    """In their order; all of them where the machine can't say what it has."""
    if not packages:
        return ()
    try:
        done = subprocess.run(
            ["dpkg-query", "--show", f"--showformat={_FORMAT}", "--", *packages],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.SubprocessError):
        return tuple(packages)
    there = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    return tuple(name for name in packages if name not in there)


def notes(wanted: Container) -> tuple[str, ...]:
    """What the project's container has and a sandbox of this machine won't, for people."""
    found: list[str] = []
    where = " and ".join(wanted.sources)
    if missing := missing_packages(wanted.system):
        found.append(f"{where} installs {', '.join(missing)}, which this machine does not have")
    if wanted.features:
        found.append(f"{where} asks for the features {', '.join(wanted.features)}, which no sandbox installs")
    return tuple(found)
