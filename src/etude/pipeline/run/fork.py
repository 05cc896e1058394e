"""A new run that begins with finished stages of another: what they made is linked, not copied, and never written again.

Stages write their files whole and replace them by renaming, so a link to a finished file never changes under its reader.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.manifest import RunManifest
from etude.pipeline.run.stage import StageError, write_json


def fork(source: Path, target: Path, stages: Collection[str]) -> None:
    """Gives `target` the finished `stages` of the run in `source`, with what the ledger says of them; it must not exist.

    Appears whole or not at all: it is built in a temporary folder and renamed.
    """
    ledger = StageLedger(source / "ledger.jsonl")
    unfinished = [name for name in stages if ledger.finished(name) is None]
    if unfinished:
        raise StageError(f"{source}: stage {unfinished[0]} is not finished there; run it first")
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    manifest = RunManifest(part)
    manifest.begin()
    for name in stages:
        manifest.open(name)
        shutil.copytree(source / name, part / name, copy_function=os.link)
        manifest.close(name)
    lines = (source / "ledger.jsonl").read_text().splitlines(keepends=True)
    (part / "ledger.jsonl").write_text("".join(line for line in lines if json.loads(line)["stage"] in stages))
    costs = json.loads((source / "stages.json").read_text())
    write_json(part / "stages.json", {name: cost for name, cost in costs.items() if name in stages})
    part.rename(target)
