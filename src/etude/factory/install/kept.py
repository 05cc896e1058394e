"""Installed projects kept on disk beside their snapshots, so that the next command finds them: one JSON file a project.

What is read is taken only while the layer store has its snapshot; else the project is installed again.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from etude.factory.generators.generator import Baseline, Installed
from etude.sandbox.errors import UserError
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import KEY, environment_of
from etude.tasks.errors import TaskError


def keep(installed: Installed, place: Path) -> None:
    """Whole or not at all."""
    baseline = asdict(installed.baseline)
    told = {
        KEY: installed.environment.told(),
        "files": dict(installed.files),
        "baseline": {**baseline, "passed": sorted(baseline["passed"]), "flaky": sorted(baseline["flaky"])},
        "origin": installed.origin,
        "licence": installed.licence,
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(told), encoding="utf-8")
    part.replace(place)


async def kept(place: Path, pool: SandboxPool) -> Installed | None:
    """None where nothing is kept, or its snapshot is gone. Raises TaskError for a file that is none of ours, InfraError."""
    if not place.is_file():
        return None
    try:
        told = json.loads(place.read_text(encoding="utf-8"))
        environment, baseline = environment_of(told), told["baseline"]
        assert environment is not None
        found = Installed(
            environment,
            told["files"],
            Baseline(
                frozenset(baseline["passed"]),
                frozenset(baseline["flaky"]),
                {file: tuple(names) for file, names in baseline["by_file"].items()},
                baseline["seconds"],
            ),
            told["origin"],
            told["licence"],
        )
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise TaskError(f"{place} is no installed project ({error!r}): remove it") from error
    try:
        box = await pool.create(SandboxSpec(snapshot=environment.snapshot))
    except UserError:
        return None  # collected meanwhile: installed again
    await box.kill()
    return found
